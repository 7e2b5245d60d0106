package statcache

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"

	"assay/internal/durable"
)

const version = 1

// DefaultMaxRows bounds a table: about 180 MB of stat rows.
const DefaultMaxRows = 2 << 20

const (
	headerSize  = 16      // magic, version, lengths of key and value
	segmentSize = 8       // rows and checksum of a segment's rows
	segmentRows = 1 << 14 // rows that are read and checked at once
	magic       = "assaytbl"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Table is a persistent map with keys and values of fixed length. Several
// processes may use one file: each sees what the others saved before it loaded.
// Its methods may be called from several goroutines.
//
// The file is a header and segments: a count, a checksum, rows. A segment that
// is torn or wrong ends the file as far as a reader is concerned, and the next
// writer replaces the whole.
type Table struct {
	path       string
	key, value int
	max        int

	mu     sync.Mutex
	rows   []byte // sorted by key, no key twice
	fresh  []byte // put since the last Save, in order
	loaded os.FileInfo
	onDisk int  // rows in the file, repetitions included
	broken bool // the file is not wholly readable
}

// NewTable describes the table in a file, which need not exist. Nothing is read
// before Load.
func NewTable(path string, key, value, maxRows int) *Table {
	return &Table{path: path, key: key, value: value, max: maxRows}
}

func (t *Table) width() int { return t.key + t.value }

// Load reads the file if another process has changed it since. A file that is
// missing, of another version, or damaged is as much of a table as can be read;
// what is no file is none.
func (t *Table) Load() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Lstat(t.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		t.rows, t.onDisk, t.loaded, t.broken = nil, 0, nil, false
		return nil
	}
	if err == nil && t.loaded != nil && os.SameFile(info, t.loaded) && info.Size() == t.loaded.Size() {
		return nil
	}
	if err == nil {
		err = t.read(info)
	}
	if err != nil {
		return fmt.Errorf("load cache: %w", err)
	}
	return nil
}

func (t *Table) header() []byte {
	h := append([]byte(magic), version, byte(t.key), 0, 0)
	return binary.LittleEndian.AppendUint32(h, uint32(t.value))
}

// read fills rows from the file. Its errors are those of the disk only.
func (t *Table) read(info os.FileInfo) error {
	f, err := durable.OpenPlain(t.path)
	if err != nil {
		return err
	}
	defer f.Close()
	t.loaded, t.onDisk, t.broken = info, 0, false
	most := int64(2*t.max*t.width()) + 1<<20
	if info.Size() > most {
		t.rows, t.broken = nil, true
		return nil
	}
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(f, head); err != nil || !bytes.Equal(head, t.header()) {
		t.rows, t.broken = nil, true
		return ignoreEOF(err)
	}
	rows := make([]byte, 0, info.Size())
	for {
		before := len(rows)
		rows, err = t.readSegment(f, rows)
		if err != nil {
			t.broken = !errors.Is(err, io.EOF)
			rows = rows[:before]
			break
		}
		t.onDisk += (len(rows) - before) / t.width()
	}
	t.rows = t.sorted(rows)
	if errors.Is(err, errTorn) {
		return nil
	}
	return ignoreEOF(err)
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

var errTorn = errors.New("the segment is torn")

func (t *Table) readSegment(f io.Reader, rows []byte) ([]byte, error) {
	var head [segmentSize]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return rows, err
	}
	n := int(binary.LittleEndian.Uint32(head[:4]))
	if n == 0 || n > segmentRows {
		return rows, errTorn
	}
	start := len(rows)
	rows = slices.Grow(rows, n*t.width())[:start+n*t.width()]
	if _, err := io.ReadFull(f, rows[start:]); err != nil {
		if ignoreEOF(err) == nil {
			err = errTorn
		}
		return rows, err
	}
	if crc32.Checksum(rows[start:], castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return rows, errTorn
	}
	return rows, nil
}

// sorted orders rows by key, in place, and keeps the last of each key.
func (t *Table) sorted(rows []byte) []byte {
	w := t.width()
	row := func(i uint32) []byte { return rows[int(i)*w : (int(i)+1)*w] }
	order := make([]uint32, len(rows)/w)
	strictly := true
	for i := range order {
		order[i] = uint32(i)
		strictly = strictly && (i == 0 || bytes.Compare(row(uint32(i - 1))[:t.key], row(uint32(i))[:t.key]) < 0)
	}
	if strictly {
		return rows
	}
	slices.SortFunc(order, func(i, j uint32) int {
		return cmp.Or(bytes.Compare(row(i)[:t.key], row(j)[:t.key]), cmp.Compare(i, j))
	})
	t.permute(rows, order)
	out := rows[:0]
	for n := range order {
		this := row(uint32(n))
		if n+1 < len(order) && bytes.Equal(this[:t.key], row(uint32(n + 1))[:t.key]) {
			continue
		}
		out = append(out, this...) // at or before where it is
	}
	return out
}

// permute puts row order[i] at i. It uses order up.
func (t *Table) permute(rows []byte, order []uint32) {
	const done = 1 << 31
	w := t.width()
	row := func(i int) []byte { return rows[i*w : (i+1)*w] }
	held := make([]byte, w)
	for i := range order {
		copy(held, row(i))
		for at := i; order[at]&done == 0; {
			next := int(order[at])
			order[at] |= done
			if next == i {
				copy(row(at), held)
				break
			}
			copy(row(at), row(next))
			at = next
		}
	}
}

// Get returns the value of a key as saved or loaded; what was put since the last
// Save is not seen. The caller must not change it.
func (t *Table) Get(key []byte) ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.width()
	n := len(t.rows) / w
	i := sort.Search(n, func(i int) bool { return bytes.Compare(t.rows[i*w:i*w+t.key], key) >= 0 })
	if i == n || !bytes.Equal(t.rows[i*w:i*w+t.key], key) {
		return nil, false
	}
	return t.rows[i*w+t.key : (i+1)*w], true
}

// Each calls fn for every row until it returns false.
func (t *Table) Each(fn func(key, value []byte) bool) {
	t.mu.Lock()
	rows := t.rows
	t.mu.Unlock()
	for w := t.width(); len(rows) > 0; rows = rows[w:] {
		if !fn(rows[:t.key], rows[t.key:w]) {
			return
		}
	}
}

// Path is where the table lies.
func (t *Table) Path() string { return t.path }

// Damaged says that the file, when it was last loaded, could not be read to its
// end: it is torn, changed, or of another version.
func (t *Table) Damaged() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

// Filter replaces the file by one with the rows, of those that can be read, that
// keep wants. What another process saves meanwhile is lost: it costs a reading.
func (t *Table) Filter(keep func(key, value []byte) bool) error {
	unlock, err := durable.Lock(filepath.Join(filepath.Dir(t.path), "lock"))
	if err != nil {
		return fmt.Errorf("filter cache: %w", err)
	}
	defer func() { _ = unlock() }()
	if err := t.Load(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rows, w := t.rows, t.width()
	t.rows = nil
	for ; len(rows) > 0; rows = rows[w:] {
		if keep(rows[:t.key], rows[t.key:w]) {
			t.rows = append(t.rows, rows[:w]...)
		}
	}
	if err := t.replace(); err != nil {
		t.loaded, t.broken = nil, true
		return fmt.Errorf("filter cache: %w", err)
	}
	return nil
}

// Put remembers a value for the next Save.
func (t *Table) Put(key, value []byte) {
	if len(key) != t.key || len(value) != t.value {
		panic(fmt.Sprintf("table %s: %d and %d bytes, want %d and %d", t.path, len(key), len(value), t.key, t.value))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.fresh) < t.max*t.width() {
		t.fresh = append(append(t.fresh, key...), value...)
	}
}

// Save appends what was put to the file, or, when the file is damaged or mostly
// out of date, replaces it. A table that would be too long begins anew with what
// was put last. It is not synced: after a power loss the checksums decide.
func (t *Table) Save() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.fresh) == 0 {
		return nil
	}
	fresh := t.sorted(t.fresh)
	t.fresh = nil
	fail := func(err error) error { return fmt.Errorf("save cache: %w", err) }
	if err := durable.MkdirAll(filepath.Dir(t.path)); err != nil {
		return fail(err)
	}
	unlock, err := durable.Lock(filepath.Join(filepath.Dir(t.path), "lock"))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = unlock() }()
	if err := durable.CheckPlain(t.path); err != nil {
		return fail(err) // whatever that is, it is not ours to replace
	}
	known := len(t.rows)
	t.merge(fresh)
	info, err := os.Lstat(t.path)
	switch {
	case err == nil && t.appendable(info, fresh, known):
		err = t.extend(fresh, info)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		err = t.replace()
	}
	if err != nil {
		t.loaded, t.broken = nil, true
		return fail(err)
	}
	return nil
}

// merge puts sorted rows over the ones there are.
func (t *Table) merge(fresh []byte) {
	w := t.width()
	if (len(t.rows)+len(fresh))/w > t.max {
		t.rows = fresh
		return
	}
	if len(t.rows) == 0 {
		t.rows = fresh
		return
	}
	out := make([]byte, 0, len(t.rows)+len(fresh))
	for old := t.rows; len(old) > 0 || len(fresh) > 0; {
		c := 0
		switch {
		case len(old) == 0:
			c = 1
		case len(fresh) == 0:
			c = -1
		default:
			c = bytes.Compare(old[:t.key], fresh[:t.key])
		}
		if c < 0 {
			out, old = append(out, old[:w]...), old[w:]
			continue
		}
		out, fresh = append(out, fresh[:w]...), fresh[w:]
		if c == 0 {
			old = old[w:]
		}
	}
	t.rows = out
}

// appendable says that the file is still the one that was loaded, that it can be
// read to its end, and that more than half of its rows will count.
func (t *Table) appendable(info os.FileInfo, fresh []byte, known int) bool {
	return t.loaded != nil && os.SameFile(info, t.loaded) && info.Size() >= t.loaded.Size() && !t.broken &&
		len(t.rows) >= known && t.onDisk+len(fresh)/t.width() <= 2*len(t.rows)/t.width()+segmentRows
}

func (t *Table) extend(fresh []byte, before os.FileInfo) error {
	f, err := durable.OpenAppend(t.path)
	if err != nil {
		return err
	}
	if err := errors.Join(t.segments(fresh, f.Append), f.Close()); err != nil {
		return err
	}
	if before.Size() != t.loaded.Size() {
		t.loaded = nil // another process added something: it is read at the next Load
		return nil
	}
	t.onDisk += len(fresh) / t.width()
	t.loaded, err = os.Stat(t.path)
	return err
}

// replace writes the whole anew. What another process saved meanwhile is lost:
// it costs a reading.
func (t *Table) replace() error {
	f, err := durable.Create(t.path)
	if err != nil {
		return err
	}
	defer f.Abort()
	put := func(b []byte) error { _, err := f.Write(b); return err }
	if err := put(t.header()); err != nil {
		return err
	}
	if err := t.segments(t.rows, put); err != nil {
		return err
	}
	if err := f.Commit(); err != nil {
		return err
	}
	t.onDisk, t.broken = len(t.rows)/t.width(), false
	t.loaded, err = os.Stat(t.path)
	return err
}

func (t *Table) segments(rows []byte, put func([]byte) error) error {
	for len(rows) > 0 {
		n := min(segmentRows, len(rows)/t.width())
		part := rows[:n*t.width()]
		rows = rows[len(part):]
		head := binary.LittleEndian.AppendUint32(nil, uint32(n))
		head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(part, castagnoli))
		if err := put(append(head, part...)); err != nil {
			return err
		}
	}
	return nil
}
