package archive

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"assay/internal/durable"
	"assay/internal/statcache"
	"assay/schemas"
)

const cacheDir = "assay/cache"

const knownValue = 1 + 32 + 8 + 32 + 8

// caches remembers the digests of files, and in which blobs content lies. They
// only save time: whatever they say of a blob is believed when the blob is there
// with the right size.
type caches struct {
	once  sync.Once
	files *statcache.Files
	known *statcache.Table
}

// open reads what other processes saved. A cache that cannot be read is empty.
func (c *caches) open(s *Store) {
	c.once.Do(func() {
		dir := s.path(cacheDir)
		c.files = statcache.NewFiles(filepath.Join(dir, "files"))
		c.known = statcache.NewTable(filepath.Join(dir, "blobs"), sha256.Size, knownValue, statcache.DefaultMaxRows)
	})
	_ = c.files.Load()
	_ = c.known.Load()
}

// save keeps what was learnt. Where a store's cache cannot be written to, or is no
// file, the next reader pays; a full or broken disk is an error as everywhere.
func (c *caches) save() error {
	var errs []error
	for _, err := range []error{c.files.Save(), c.known.Save()} {
		if !readOnly(err) && !errors.Is(err, durable.ErrNotRegular) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// knownKey names content: what it is, and everything that decides how it is
// stored.
func knownKey(what string, fields ...any) []byte {
	h := sha256.New()
	_, _ = io.WriteString(h, what)
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			_ = binary.Write(h, binary.LittleEndian, int64(len(f)))
			_, _ = io.WriteString(h, f)
		default:
			_ = binary.Write(h, binary.LittleEndian, f)
		}
	}
	return h.Sum(nil)
}

var knownMediaTypes = []string{"", MediaPart, MediaPartZstd, MediaPack}

// remember keeps where content is stored.
func (c *caches) remember(key []byte, b schemas.Blob) {
	v := make([]byte, 0, knownValue)
	for i, m := range knownMediaTypes {
		if m == b.MediaType {
			v = append(v, byte(i))
		}
	}
	v = appendDigest(v, b.Digest)
	v = binary.LittleEndian.AppendUint64(v, uint64(b.Size))
	v = appendDigest(v, b.ContentDigest)
	c.known.Put(key, binary.LittleEndian.AppendUint64(v, uint64(b.ContentSize)))
}

func appendDigest(b []byte, d schemas.Digest) []byte {
	var sum [sha256.Size]byte
	_, _ = hex.Decode(sum[:], []byte(d.Hex()))
	return append(b, sum[:]...)
}

// stored returns the blob in which content is known to lie, if it is there. Who has
// read the content wants the blob whole: it can write it anew.
func (c *caches) stored(s *Store, key []byte, read bool) (b schemas.Blob, ok bool, err error) {
	v, ok := c.known.Get(key)
	if !ok || int(v[0]) >= len(knownMediaTypes) || v[0] == 0 {
		return b, false, nil
	}
	b = schemas.Blob{MediaType: knownMediaTypes[v[0]], Digest: schemas.DigestFromSum(v[1:33]), Size: int64(binary.LittleEndian.Uint64(v[33:]))}
	if b.MediaType != MediaPart {
		b.ContentDigest = schemas.DigestFromSum(v[41:73])
		b.ContentSize = int64(binary.LittleEndian.Uint64(v[73:]))
	}
	if checkBlob(b) != nil {
		return b, false, nil
	}
	if read {
		ok, err = s.haveWhole(b.Digest, b.Size)
	} else {
		ok, err = s.haveBlob(b.Digest, b.Size)
	}
	return b, ok, err
}

// haveBlob reports whether a blob is there, freshened, with the right size.
// Another process may have renamed it into place and not yet synced the folder:
// that must be done before something that names the blob is stored.
func (s *Store) haveBlob(d schemas.Digest, size int64) (bool, error) {
	info, err := os.Lstat(s.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() || info.Size() != size {
		return false, nil
	}
	return s.freshen(d)
}

// haveWhole is haveBlob for who has the right bytes at hand: the blob's own are
// read too, once in the life of this value, so that what has rotten is written
// anew rather than named by another run.
func (s *Store) haveWhole(d schemas.Digest, size int64) (bool, error) {
	have, err := s.haveBlob(d, size)
	if err != nil || !have {
		return have, err
	}
	if _, known := s.whole.Load(d); known {
		return true, nil
	}
	f, err := durable.OpenPlain(s.blobPath(d))
	if err != nil {
		return false, nil // it is written anew, and that error counts
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil || schemas.DigestFromSum(h.Sum(nil)) != d {
		return false, nil
	}
	s.whole.Store(d, true)
	return true, nil
}
