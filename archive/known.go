package archive

import (
	"bytes"
	"context"
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

// A row of the table of stored blobs: media type, digest, size, content's digest
// and size; the stamp of the blob's file; a checksum of it all and the key.
const (
	knownBlob  = 1 + 32 + 8 + 32 + 8
	knownStamp = 4 * 8
	knownValue = knownBlob + knownStamp + 8
)

// caches remembers the digests of files, and in which blobs content lies. They
// only save time: what they say of a blob is believed as long as stat shows its
// file to be the one that held the content when the row was written; otherwise the
// blob is read, and what is in it must be what the row says.
type caches struct {
	once  sync.Once
	s     *Store
	local bool // the blobs lie on a disk whose stamps can be relied on
	files *statcache.Files
	known *statcache.Table

	mu      sync.Mutex
	pending []knownRow
}

// knownRow is a row that gets its stamp once the blob has its name.
type knownRow struct {
	key []byte
	b   schemas.Blob
}

// open reads what other processes saved. A cache that cannot be read is empty.
func (c *caches) open(s *Store) {
	c.once.Do(func() {
		dir := s.path(cacheDir)
		c.s, c.local = s, statcache.LocalDisk(s.path(blobsDir))
		c.files = statcache.NewFiles(filepath.Join(dir, "files"))
		c.known = statcache.NewTable(filepath.Join(dir, "blobs"), sha256.Size, knownValue, statcache.DefaultMaxRows)
	})
	_ = c.files.Load()
	_ = c.known.Load()
}

// save keeps what was learnt. Where a store's cache cannot be written to, or is no
// file, the next reader pays; a full or broken disk is an error as everywhere.
func (c *caches) save() error {
	c.mu.Lock()
	pending := c.pending
	c.pending = nil
	c.mu.Unlock()
	for _, r := range pending {
		c.known.Put(r.key, c.row(r))
	}
	var errs []error
	for _, err := range []error{c.files.Save(), c.known.Save()} {
		if !readOnly(err) && !errors.Is(err, durable.ErrNotRegular) && !errors.Is(err, durable.ErrNotFolder) {
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

// remember keeps where content is stored. The caller knows it: it wrote the blob
// or has compared it.
func (c *caches) remember(key []byte, b schemas.Blob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, knownRow{key, b})
}

// hint notes that content of that name was seen. It names no blob.
func (c *caches) hint(key []byte) { c.known.Put(key, make([]byte, knownValue)) }

func (c *caches) row(r knownRow) []byte {
	v := make([]byte, 0, knownValue)
	for i, m := range knownMediaTypes {
		if m == r.b.MediaType {
			v = append(v, byte(i))
		}
	}
	v = appendDigest(v, r.b.Digest)
	v = binary.LittleEndian.AppendUint64(v, uint64(r.b.Size))
	v = appendDigest(v, r.b.ContentDigest)
	v = binary.LittleEndian.AppendUint64(v, uint64(r.b.ContentSize))
	var stamp statcache.Stamp
	if at, ok := c.s.whole.Load(r.b.Digest); ok && c.local {
		stamp = at.(statcache.Stamp)
	}
	v = append(v, stampBytes(stamp)...)
	return append(v, rowSum(r.key, v)...)
}

// stampBytes leaves out the size, which the row has already.
func stampBytes(s statcache.Stamp) []byte {
	v := make([]byte, 0, knownStamp)
	for _, n := range []uint64{s.Dev, s.Ino, uint64(s.MTime), uint64(s.CTime)} {
		v = binary.LittleEndian.AppendUint64(v, n)
	}
	return v
}

// rowSum binds a value to its key.
func rowSum(key, value []byte) []byte {
	h := sha256.New()
	h.Write(key)
	h.Write(value)
	return h.Sum(nil)[:8]
}

func appendDigest(b []byte, d schemas.Digest) []byte {
	var sum [sha256.Size]byte
	_, _ = hex.Decode(sum[:], []byte(d.Hex()))
	return append(b, sum[:]...)
}

// stored returns the blob in which content is known to lie, if it is there and
// whole. It is freshened.
func (c *caches) stored(s *Store, key []byte) (b schemas.Blob, ok bool, err error) {
	v, ok := c.known.Get(key)
	if !ok {
		return b, false, nil
	}
	b, stamp, ok := parseRow(key, v)
	if !ok {
		return b, false, nil
	}
	before, after, ok, err := s.touched(b.Digest, b.Size)
	if err != nil || !ok {
		return b, false, err
	}
	if c.local && string(stampBytes(before)) == stamp {
		s.whole.Store(b.Digest, after)
	} else if ok, err = s.proves(b, key, after); err != nil || !ok {
		return b, false, err
	}
	c.remember(key, b) // under its new stamp
	return b, true, nil
}

// parseRow reads a row of the table of stored blobs. A hint, which names none, is
// not ok.
func parseRow(key, v []byte) (b schemas.Blob, stamp string, ok bool) {
	if v[0] == 0 || int(v[0]) >= len(knownMediaTypes) || string(rowSum(key, v[:knownBlob+knownStamp])) != string(v[knownBlob+knownStamp:]) {
		return b, "", false
	}
	b = schemas.Blob{MediaType: knownMediaTypes[v[0]], Digest: schemas.DigestFromSum(v[1:33]), Size: int64(binary.LittleEndian.Uint64(v[33:]))}
	if b.MediaType != MediaPart {
		if sum := v[41:73]; !bytes.Equal(sum, make([]byte, len(sum))) { // packs may have none
			b.ContentDigest = schemas.DigestFromSum(sum)
		}
		b.ContentSize = int64(binary.LittleEndian.Uint64(v[73:]))
	}
	return b, string(v[knownBlob : knownBlob+knownStamp]), checkBlob(b) == nil
}

// haveBlob reports whether a blob is there, freshened, with the right size.
// Another process may have renamed it into place and not yet synced the folder:
// that must be done before something that names the blob is stored.
func (s *Store) haveBlob(d schemas.Digest, size int64) (bool, error) {
	_, _, ok, err := s.touched(d, size)
	return ok, err
}

// touched freshens a blob of the right size and returns what stat said of it
// before and after.
func (s *Store) touched(d schemas.Digest, size int64) (before, after statcache.Stamp, ok bool, err error) {
	if before, err = s.stamp(d); err != nil || before.Size != size || before.Ino == 0 {
		return before, after, false, err
	}
	if ok, err = s.freshen(d); err != nil || !ok {
		return before, after, false, err
	}
	if after, err = s.stamp(d); err != nil || after.Size != size || after.Ino == 0 {
		return before, after, false, err
	}
	if before.Dev != after.Dev || before.Ino != after.Ino {
		before = statcache.Stamp{} // another file has taken its place
	}
	return before, after, true, nil
}

// stamp is zero for what is not there or is no file.
func (s *Store) stamp(d schemas.Digest) (statcache.Stamp, error) {
	info, err := os.Lstat(s.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return statcache.Stamp{}, nil
	}
	if err != nil {
		return statcache.Stamp{}, err
	}
	return statcache.StampOf(info), nil
}

// haveWhole is haveBlob for who is about to name the blob: it is read too, unless
// it was written or read in the life of this value and is still the same file, so
// that what has rotten is written anew rather than named by another run.
func (s *Store) haveWhole(d schemas.Digest, size int64) (bool, error) {
	before, after, ok, err := s.touched(d, size)
	if err != nil || !ok {
		return false, err
	}
	if was, known := s.whole.Load(d); known && was == before {
		s.whole.Store(d, after)
		return true, nil
	}
	bad, err := s.hashBlob(context.Background(), d, nil)
	if err != nil || bad != nil {
		return false, nil //nolint:nilerr // it is written anew, and that error counts
	}
	s.keepStamp(d, after)
	return true, nil
}

// keepStamp remembers that a blob that was read is whole, if nobody touched it
// meanwhile.
func (s *Store) keepStamp(d schemas.Digest, before statcache.Stamp) {
	if now, err := s.stamp(d); err == nil && now == before {
		s.whole.Store(d, now)
	}
}
