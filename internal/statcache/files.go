package statcache

import (
	"encoding/binary"
	"io/fs"
	"sync"
	"syscall"
	"time"
)

// Stamp is what stat says of a file's identity and last change. Times are
// nanoseconds since 1970.
type Stamp struct {
	Dev, Ino           uint64
	Size, MTime, CTime int64
}

// StampOf takes the stamp from what Stat returned.
func StampOf(info fs.FileInfo) Stamp {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Stamp{}
	}
	return Stamp{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, MTime: st.Mtim.Nano(), CTime: st.Ctim.Nano()} //nolint:unconvert // not on every platform
}

// Sum is a SHA-256.
type Sum = [32]byte

const (
	fileKey   = 16
	fileValue = 24 + 32
	// The kernel stamps a file with a clock that lags by up to a tick of 10 ms.
	fineGranularity   = 100 * time.Millisecond
	coarseGranularity = 2 * time.Second // of FAT, the coarsest there is
)

// Files remembers the digests of files.
type Files struct {
	*Table
	mu    sync.Mutex
	local map[uint64]bool // by device
}

// NewFiles describes the cache in a file. Nothing is read before Load.
func NewFiles(path string) *Files {
	return &Files{Table: NewTable(path, fileKey, fileValue, DefaultMaxRows), local: map[uint64]bool{}}
}

func (s Stamp) key() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, fileKey), s.Dev)
	return binary.BigEndian.AppendUint64(b, s.Ino)
}

func (s Stamp) value() []byte {
	b := make([]byte, 0, fileValue)
	for _, n := range []int64{s.Size, s.MTime, s.CTime} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// Lookup returns the digest of the file that stat describes, if it is known.
func (f *Files) Lookup(s Stamp) (sum Sum, ok bool) {
	sum, _, ok = f.LookupMarked(s)
	return sum, ok
}

// markBit of a row's size is the mark: no file is that long.
const markBit = 1 << 62

// LookupMarked is Lookup that returns also what was remembered beside the digest.
func (f *Files) LookupMarked(s Stamp) (sum Sum, mark, ok bool) {
	v, ok := f.Get(s.key())
	if !ok {
		return sum, false, false
	}
	size := binary.LittleEndian.Uint64(v)
	mark = size&markBit != 0
	if int64(size&^markBit) != s.Size || string(v[8:24]) != string(s.value()[8:]) {
		return sum, false, false
	}
	copy(sum[:], v[24:])
	return sum, mark, true
}

// Remember keeps a digest for the next Save. before is the stamp that was taken
// before the first byte was read, after the one taken after the last, both of
// the open file, and began is when before was taken. A file that may change
// without changing its stamp is not remembered, nor is one on a disk whose
// inodes and times need not be this host's; path is any path on that disk.
func (f *Files) Remember(before, after Stamp, began time.Time, sum Sum, path string) {
	f.RememberMarked(before, after, began, sum, false, path)
}

// RememberMarked is Remember that keeps one thing more that the content decides.
func (f *Files) RememberMarked(before, after Stamp, began time.Time, sum Sum, mark bool, path string) {
	if before != after || !Settled(before, began) || !f.onLocalDisk(before.Dev, path) {
		return
	}
	if before.Size&markBit != 0 {
		return
	}
	key := before.key()
	if mark {
		before.Size |= markBit
	}
	f.Put(key, append(before.value(), sum[:]...))
}

// Settled says that a write after began must leave another stamp than s.
func Settled(s Stamp, began time.Time) bool {
	granularity := fineGranularity
	if s.CTime%int64(time.Second) == 0 {
		granularity = coarseGranularity
	}
	limit := began.Add(-granularity).UnixNano()
	return s.Ino != 0 && s.MTime < limit && s.CTime < limit
}

func (f *Files) onLocalDisk(dev uint64, path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	yes, known := f.local[dev]
	if !known {
		yes = LocalDisk(path)
		f.local[dev] = yes
	}
	return yes
}
