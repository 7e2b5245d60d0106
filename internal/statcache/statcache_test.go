package statcache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"assay/internal/durable"
)

func testTable(dir string, maxRows int) *Table {
	return NewTable(filepath.Join(dir, "cache", "t"), 2, 8, maxRows)
}

func k(n int) []byte   { return binary.BigEndian.AppendUint16(nil, uint16(n)) }
func v(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// Tables of two processes, whatever they do to one file, never give a value that
// was not put for the key, and one that works alone gives the last one.
func TestTableModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		tables := []*Table{testTable(dir, 1000), testTable(dir, 1000)}
		put := map[int]map[int64]bool{}
		last := map[int]int64{}
		alone := rapid.Bool().Draw(rt, "alone")
		n := int64(0)
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			table := tables[0]
			if !alone {
				table = tables[rapid.IntRange(0, 1).Draw(rt, "process")]
			}
			if rapid.Bool().Draw(rt, "reopen") {
				table = testTable(dir, 1000)
			}
			if err := table.Load(); err != nil {
				rt.Fatal(err)
			}
			for range rapid.IntRange(0, 6).Draw(rt, "puts") {
				key := rapid.IntRange(0, 9).Draw(rt, "key")
				n++
				table.Put(k(key), v(n))
				if put[key] == nil {
					put[key] = map[int64]bool{}
				}
				put[key][n], last[key] = true, n
			}
			if err := table.Save(); err != nil {
				rt.Fatal(err)
			}
			for key := range 10 {
				got, ok := table.Get(k(key))
				switch {
				case alone && ok != (last[key] != 0), ok && !put[key][int64(binary.BigEndian.Uint64(got))]:
					rt.Fatalf("key %d: %v, %t", key, got, ok)
				case alone && ok && int64(binary.BigEndian.Uint64(got)) != last[key]:
					rt.Fatalf("key %d is %v, want %d", key, got, last[key])
				}
			}
		}
	})
}

// Whatever byte of the file is changed, and wherever it is cut, loading it gives
// no wrong value, and saving mends it.
func TestTableDamage(t *testing.T) {
	dir := t.TempDir()
	table := testTable(dir, 1000)
	for i := range 3 {
		table.Put(k(i), v(int64(i)))
		if err := table.Save(); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(table.path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte, what string, at int) {
		t.Helper()
		if err := os.WriteFile(table.path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		again := testTable(dir, 1000)
		if err := again.Load(); err != nil {
			t.Fatal(err)
		}
		again.Each(func(key, value []byte) bool {
			if !bytes.Equal(value[6:], key) {
				t.Errorf("%s at %d: %v has %v", what, at, key, value)
			}
			return true
		})
		again.Put(k(7), v(7))
		if err := again.Save(); err != nil {
			t.Fatal(err)
		}
		last := testTable(dir, 1000)
		if err := last.Load(); err != nil || last.broken {
			t.Fatalf("%s at %d: not mended, %v", what, at, err)
		}
		if got, ok := last.Get(k(7)); !ok || !bytes.Equal(got, v(7)) {
			t.Errorf("%s at %d: %v, %t", what, at, got, ok)
		}
	}
	for at := range whole {
		check(whole[:at], "cut", at)
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x40
		check(flipped, "flip", at)
	}
}

func TestTableIsBounded(t *testing.T) {
	table := testTable(t.TempDir(), 100)
	for i := range 1000 {
		table.Put(k(i), v(int64(i)))
		if i%7 == 0 {
			if err := table.Save(); err != nil {
				t.Fatal(err)
			}
			if n := len(table.rows) / table.width(); n > 100 {
				t.Fatalf("%d rows, want at most 100", n)
			}
		}
	}
	for range 100 { // the same rows again and again do not make the file grow
		for i := range 50 {
			table.Put(k(i), v(int64(i)))
		}
		if err := table.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(table.path); err != nil || info.Size() > (segmentRows+300)*10+10000 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
}

func TestTableFaultsAreSeen(t *testing.T) {
	dir := t.TempDir()
	ops := 0
	defer durable.SetHook(durable.SetHook(func(durable.Op, string) error { ops++; return nil }))
	table := testTable(dir, 10)
	table.Put(k(1), v(1))
	if err := table.Save(); err != nil || ops < 5 {
		t.Errorf("%d operations, %v", ops, err)
	}
	ops = 0
	table.Put(k(2), v(2))
	if err := table.Save(); err != nil || ops != 1 {
		t.Errorf("an append is %d operations, want 1, %v", ops, err)
	}
}

func TestTableConcurrently(t *testing.T) {
	dir := t.TempDir()
	shared := testTable(dir, 1000)
	var wg sync.WaitGroup
	for p := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			table := shared
			if p%2 == 0 {
				table = testTable(dir, 1000)
			}
			for i := range 50 {
				table.Put(k(p*100+i), v(int64(p*100+i)))
				if err := table.Load(); err != nil {
					t.Error(err)
				}
				if err := table.Save(); err != nil {
					t.Error(err)
				}
				table.Get(k(i))
			}
		}()
	}
	wg.Wait()
}

func stampFile(t *testing.T, path string) Stamp {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return StampOf(info)
}

// A program that keeps size and modification time cannot keep the change time.
func TestReplacementWithSameSizeAndTime(t *testing.T) {
	dir := t.TempDir()
	if !LocalDisk(dir) {
		t.Skip("the temporary folder is on no known local disk")
	}
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	files := NewFiles(filepath.Join(dir, "cache"))
	was := stampFile(t, path)
	files.Remember(was, was, time.Now().Add(time.Hour), sha256.Sum256([]byte("before")), path)
	if err := files.Save(); err != nil {
		t.Fatal(err)
	}
	if got, ok := files.Lookup(was); !ok || got != sha256.Sum256([]byte("before")) {
		t.Fatalf("an old file is not remembered: %x, %t", got, ok)
	}
	now := was
	for now.CTime == was.CTime { // the clock of the file system may be coarse
		if err := os.WriteFile(path, []byte("after!"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(0, was.MTime)); err != nil {
			t.Fatal(err)
		}
		now = stampFile(t, path)
	}
	if now.Size != was.Size || now.MTime != was.MTime || now.Ino != was.Ino {
		t.Fatalf("the test changed more than the content: %+v, %+v", was, now)
	}
	if _, ok := files.Lookup(now); ok {
		t.Error("the replacement was taken for the file that was hashed")
	}
}

func TestRacyIsNotRemembered(t *testing.T) {
	began := time.Unix(1000, 5)
	at := func(before time.Duration) int64 { return began.Add(-before).UnixNano() }
	for _, c := range []struct {
		name         string
		mtime, ctime int64
		want         bool
	}{
		{"long ago", at(time.Hour), at(time.Hour), true},
		{"a second ago, fine clock", at(time.Second), at(time.Second), true},
		{"within a tick", at(time.Hour), at(5 * time.Millisecond), false},
		{"now", at(0), at(0), false},
		{"whole seconds, a second ago", at(time.Hour), at(time.Second + 5), false},
		{"whole seconds, long ago", at(time.Hour), at(time.Minute + 5), true},
		{"modified in the future", at(-time.Hour), at(time.Hour), false},
		{"changed in the future", at(time.Hour), at(-time.Hour), false},
	} {
		if got := Settled(Stamp{Dev: 1, Ino: 2, MTime: c.mtime, CTime: c.ctime}, began); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
	files := NewFiles(filepath.Join(t.TempDir(), "cache"))
	s := Stamp{Dev: 1, Ino: 2, MTime: at(time.Hour), CTime: at(time.Hour)}
	later := s
	later.CTime++
	files.Remember(s, later, began, Sum{}, t.TempDir())
	if err := files.Save(); err != nil {
		t.Fatal(err)
	}
	if _, ok := files.Lookup(s); ok {
		t.Error("a file that changed while it was read is remembered")
	}
}

func TestDiskOf(t *testing.T) {
	for path, want := range map[string]Disk{"/dev/shm": Memory, "/proc": Other} {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if kind, name, err := DiskOf(path); err != nil || kind != want || name == "" {
			t.Errorf("%s is %s (%s), %v; want %s", path, kind, name, err, want)
		}
	}
	if _, _, err := DiskOf(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("nothing has a file system")
	}
	for magic, want := range map[uint32]Disk{0x6969: Network, 0xff534d42: Network, 0xfe534d42: Network, 0x0bd00bd0: Network, 0xef53: Local, 0x58465342: Local, 0x9123683e: Local, 0x01021994: Memory, 0x65735546: Other} {
		if got := disks[magic]; got.kind != want {
			t.Errorf("0x%x is %+v, want %s", magic, got, want)
		}
	}
}
