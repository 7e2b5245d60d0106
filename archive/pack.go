package archive

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"assay/schemas"
)

// tarCost is an upper bound of the bytes a file takes in a pack: headers (an
// extended one for a long or non-ASCII name) and padding.
func tarCost(name string, size int64) int64 {
	cost := 512 + (size+511)/512*512
	if len(name) > 100 || !isASCII(name) {
		cost += 512 + (int64(len(name))+64+511)/512*512
	}
	return cost
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// bucketFiles deals indices of files over packs by a hash of the path. The
// number of packs is a power of two that depends on the total size only, so a
// file that changes changes one pack.
func bucketFiles(n int, name func(int) string, size func(int) int64) [][]int {
	var total int64
	for i := range n {
		total += tarCost(name(i), size(i))
	}
	count := 1
	for int64(count)*packTargetBytes < total {
		count *= 2
	}
	for ; ; count *= 2 {
		buckets := make([][]int, count)
		sizes := make([]int64, count)
		fits := true
		for i := range n {
			sum := sha256.Sum256([]byte(name(i)))
			b := int(binary.BigEndian.Uint32(sum[:4])) % count
			buckets[b] = append(buckets[b], i)
			sizes[b] += tarCost(name(i), size(i))
			fits = fits && (sizes[b] <= packLimitBytes-1024 || len(buckets[b]) == 1)
		}
		if fits || count >= 1<<24 {
			return buckets
		}
	}
}

// packImages are kept, since each is some megabytes.
var packImages = sync.Pool{New: func() any { return &packImage{} }}

// packWriter writes one deterministic tar, compressed, as a blob.
type packWriter struct {
	blob    *blobWriter
	enc     *zstd.Encoder
	tw      *tar.Writer
	content hash.Hash
	size    int64
	media   string
}

func (s *Store) newPack(media string) (*packWriter, error) {
	blob, err := s.newBlob()
	if err != nil {
		return nil, err
	}
	p := &packWriter{blob: blob, enc: newEncoder(packEncoders, blob), content: sha256.New(), media: media}
	p.tw = tar.NewWriter(p)
	return p, nil
}

// Write takes the tar stream.
func (p *packWriter) Write(b []byte) (int, error) {
	p.content.Write(b)
	p.size += int64(len(b))
	return p.enc.Write(b)
}

// packHeader is all that a pack says of a file beside its bytes.
func packHeader(name string, executable bool, size int64) *tar.Header {
	mode := int64(0o644)
	if executable {
		mode = 0o755
	}
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode, ModTime: time.Unix(0, 0)}
}

// add appends one file and returns where its bytes begin in the tar.
func (p *packWriter) add(name string, executable bool, size int64, content io.Reader) (offset int64, err error) {
	h := packHeader(name, executable, size)
	if err := p.tw.WriteHeader(h); err != nil {
		return 0, err
	}
	offset = p.size
	if n, err := io.Copy(p.tw, content); err != nil {
		return 0, fmt.Errorf("after %d of %d bytes: %w", n, size, err)
	}
	return offset, p.tw.Flush() // fails when there were too few bytes
}

func (p *packWriter) abort() {
	_ = p.enc.Close()
	p.blob.abort()
}

// commit ends the tar and stores it.
func (p *packWriter) commit() (schemas.Blob, error) {
	b, err := p.publish()
	if err == nil {
		err = p.blob.s.syncBlobs()
	}
	return b, err
}

// publish is commit before syncBlobs.
func (p *packWriter) publish() (schemas.Blob, error) {
	if err := p.tw.Close(); err != nil {
		p.abort()
		return schemas.Blob{}, fmt.Errorf("end pack: %w", err)
	}
	if err := p.enc.Close(); err != nil {
		p.blob.abort()
		return schemas.Blob{}, fmt.Errorf("end pack: %w", err)
	}
	packEncoders.Put(p.enc)
	size := p.blob.size
	d, err := p.blob.publish()
	if err != nil {
		return schemas.Blob{}, err
	}
	return schemas.Blob{MediaType: p.media, Digest: d, Size: size,
		ContentDigest: schemas.DigestFromSum(p.content.Sum(nil)), ContentSize: p.size}, nil
}
