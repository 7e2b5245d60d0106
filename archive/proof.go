package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"

	"assay/internal/statcache"
	"assay/schemas"
)

// proves reads a blob and says whether the content that key names lies in it.
// stamp is what stat said before. A blob that cannot be read proves nothing.
func (s *Store) proves(b schemas.Blob, key []byte, stamp statcache.Stamp) (bool, error) {
	names, err := s.contentKeys(context.Background(), b)
	if err != nil {
		return false, nil //nolint:nilerr // the content is stored anew, and that error counts
	}
	for _, n := range names {
		if bytes.Equal(n, key) {
			s.keepStamp(b.Digest, stamp)
			return true, nil
		}
	}
	return false, nil
}

// contentKeys reads a blob, checks it, and names its content as the table of
// stored blobs does. The parts of a file in several blobs have no name here: it
// comes from the whole file.
func (s *Store) contentKeys(ctx context.Context, b schemas.Blob) ([][]byte, error) {
	if b.MediaType != MediaPack {
		content, err := s.readWhole(ctx, b)
		return [][]byte{partKey(content, 0)}, err
	}
	var keys [][]byte
	err := s.readPack(ctx, b, nil, nil, nil, nil, func(content []byte) (err error) {
		keys, err = packContentKeys(content)
		return err
	})
	return keys, err
}

// packContentKeys are packKey, of this version and the one before, for a pack that
// was read.
func packContentKeys(content []byte) ([][]byte, error) {
	random := uint64(0)
	var rows []byte
	err := walkTar(bytes.NewReader(content), func(head *tar.Header, r io.Reader) error {
		file, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if isFlat(file) {
			random++
		}
		mode := byte(0)
		if head.Mode&0o111 != 0 {
			mode = 1
		}
		rows = binary.LittleEndian.AppendUint64(append(rows, mode), uint64(len(file)))
		rows = append(append(append(rows, schemas.DigestOf(file)...), head.Name...), 0)
		return nil
	})
	one := sha256.Sum256(append([]byte("pack/1"), rows...))
	two := sha256.Sum256(append(binary.LittleEndian.AppendUint64([]byte("pack/2"), random), rows...))
	return [][]byte{one[:], two[:]}, err
}
