package gguf

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"assay/schemas"
)

// file builds a GGUF file by hand.
type file struct{ b []byte }

func (f *file) u32(n uint32) *file { f.b = binary.LittleEndian.AppendUint32(f.b, n); return f }
func (f *file) u64(n uint64) *file { f.b = binary.LittleEndian.AppendUint64(f.b, n); return f }
func (f *file) text(s string) *file {
	f.u64(uint64(len(s)))
	f.b = append(f.b, s...)
	return f
}

func begin(version uint32, tensors, keys uint64) *file {
	f := &file{b: []byte("GGUF")}
	return f.u32(version).u64(tensors).u64(keys)
}

func (f *file) pair(key, value string) *file { return f.text(key).u32(valueText).text(value) }

func (f *file) tensor(name string, kind uint32, offset uint64, dims ...uint64) *file {
	f.text(name).u32(uint32(len(dims)))
	for _, d := range dims {
		f.u64(d)
	}
	return f.u32(kind).u64(offset)
}

// data ends the header and adds n bytes of weights.
func (f *file) data(n int) *file {
	f.b = append(f.b, make([]byte, (32-len(f.b)%32)%32+n)...)
	return f
}

func whole() *file {
	f := begin(3, 2, 4).pair("general.architecture", "gemma3")
	f.text("tokenizer.ggml.tokens").u32(valueArray).u32(valueText).u64(2).text("<pad>").text("<eos>")
	f.text("tokenizer.ggml.scores").u32(valueArray).u32(6).u64(2).u64(0)
	f.text("gemma3.context_length").u32(4).u32(32768)
	return f.tensor("a", 0, 0, 8, 2).tensor("b", 12, 64, 256, 2).data(64 + 288)
}

func TestCheck(t *testing.T) {
	arch := func(f *file) *file { return f.pair("general.architecture", "x") }
	cut := whole()
	cut.b = cut.b[:len(cut.b)-1]
	short := whole()
	short.b = short.b[:100]
	big := &file{b: []byte("GGUF\x00\x00\x00\x03")}
	for name, c := range map[string]struct {
		f        *file
		id, says string
	}{
		"whole":           {whole(), "gguf.header", `version 3, architecture "gemma3", 4 keys, 2 tensors (1 F32, 1 Q4_K)`},
		"version 2":       {arch(begin(2, 1, 1)).tensor("a", 0, 0, 1).data(4), "gguf.header", "version 2"},
		"a pointer":       {&file{b: []byte("version https://git-lfs")}, "gguf.magic", `begins with "vers"`},
		"nothing":         {&file{}, "gguf.truncated", "at byte 0: the file ends"},
		"version":         {begin(1, 0, 0), "gguf.version", "version 1"},
		"big-endian":      {big.u64(0).u64(0), "gguf.byte-order", "big-endian"},
		"header cut":      {short, "gguf.truncated", "at byte 100"},
		"data cut":        {cut, "gguf.tensor-bounds", `tensor "b" takes 288 bytes from offset 64`},
		"keys":            {begin(3, 0, 1<<40), "gguf.limit", "keys"},
		"tensors":         {begin(3, 1<<40, 0), "gguf.limit", "tensors"},
		"long key":        {begin(3, 0, 1).u64(1 << 62), "gguf.limit", "a key of"},
		"long text":       {begin(3, 0, 1).text("k").u32(valueText).u64(1 << 62), "gguf.limit", `key "k" has a text`},
		"long array":      {begin(3, 0, 1).text("k").u32(valueArray).u32(0).u64(1 << 62), "gguf.limit", "elements"},
		"wide array":      {begin(3, 0, 1).text("k").u32(valueArray).u32(12).u64(1 << 30), "gguf.limit", "header is larger"},
		"array cut":       {begin(3, 0, 1).text("k").u32(valueArray).u32(valueText).u64(1 << 40), "gguf.truncated", "ends within"},
		"nested":          {begin(3, 0, 1).text("k").u32(valueArray).u32(valueArray).u64(1), "gguf.value-type", "unknown type 9"},
		"value type":      {begin(3, 0, 1).text("k").u32(77), "gguf.value-type", "77"},
		"not UTF-8":       {begin(3, 0, 1).text("\xff"), "gguf.text", "UTF-8"},
		"key twice":       {begin(3, 0, 2).pair("k", "1").pair("k", "2"), "gguf.duplicate", `key "k"`},
		"tensor twice":    {arch(begin(3, 2, 1)).tensor("a", 0, 0, 1).tensor("a", 0, 32, 1), "gguf.duplicate", `tensor "a"`},
		"no dimension":    {begin(3, 1, 0).tensor("a", 0, 0), "gguf.tensor", "0 dimensions"},
		"five dimensions": {begin(3, 1, 0).tensor("a", 0, 0, 1, 1, 1, 1, 1), "gguf.tensor", "5 dimensions"},
		"a dimension 0":   {begin(3, 1, 0).tensor("a", 0, 0, 4, 0), "gguf.tensor", "dimension of 0"},
		"part of a block": {arch(begin(3, 1, 1)).tensor("a", 12, 0, 100).data(999), "gguf.tensor", "Q4_K blocks"},
		"beyond counting": {arch(begin(3, 1, 1)).tensor("a", 0, 0, 1<<40, 1<<40).data(9), "gguf.tensor", "whole number"},
		"offset":          {arch(begin(3, 1, 1)).tensor("a", 0, 1<<63, 1).data(9), "gguf.tensor-bounds", "ends at byte"},
		"not aligned":     {arch(begin(3, 1, 1)).tensor("a", 0, 4, 1).data(9), "gguf.tensor-alignment", "multiple of 32"},
		"overlap":         {arch(begin(3, 2, 1)).tensor("a", 0, 0, 16).tensor("b", 0, 32, 1).data(99), "gguf.tensor-overlap", `inside tensor "a"`},
		"alignment":       {begin(3, 0, 1).text("general.alignment").u32(4).u32(3), "gguf.alignment", "is 3"},
		"no architecture": {begin(3, 1, 0).tensor("a", 0, 0, 1).data(4), "gguf.architecture", "general.architecture"},
		"no tensor":       {arch(begin(3, 0, 1)), "gguf.empty", "no tensor"},
	} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, c.f.b, 0o600); err != nil {
			t.Fatal(err)
		}
		got := Check("model m", path)
		if len(got) != 1 || got[0].ID != c.id || !strings.Contains(got[0].Message, c.says) || got[0].Subject != "model m" {
			t.Errorf("%s: %+v, want %s %q", name, got, c.id, c.says)
			continue
		}
		if pass := got[0].Severity == schemas.SeverityPass; pass != (c.id == "gguf.header") || !pass && got[0].Remedy == "" {
			t.Errorf("%s: %+v", name, got[0])
		}
	}
}

func TestUnknownTensorTypesWarnAndUnreadableFilesAreUnknown(t *testing.T) {
	f := begin(3, 1, 1).pair("general.architecture", "x").tensor("a", 99, 0, 5).data(9)
	got := check("s", "m.gguf", bytes.NewReader(f.b), int64(len(f.b)))
	if len(got) != 2 || got[0].ID != "gguf.tensor-type" || got[0].Severity != schemas.SeverityWarning || got[1].Severity != schemas.SeverityPass {
		t.Errorf("%+v", got)
	}
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none.gguf")} {
		if got := Check("s", path); len(got) != 1 || got[0].Severity != schemas.SeverityUnknown || strings.Contains(got[0].Message, dir) {
			t.Errorf("%+v", got)
		}
	}
	if !Is("/x/Model.GGUF") || Is("/x/model.safetensors") {
		t.Error("file names")
	}
}

// part is file no (from 0) of a set, with a tensor of its own.
func part(no, count uint32, keys ...string) *file {
	f := begin(3, 1, uint64(2+len(keys)))
	for _, k := range keys {
		f.pair(k, "x")
	}
	f.text("split.no").u32(2)
	f.b = binary.LittleEndian.AppendUint16(f.b, uint16(no))
	f.text("split.count").u32(2)
	f.b = binary.LittleEndian.AppendUint16(f.b, uint16(count))
	return f.tensor("t", 0, 0, 1).data(4)
}

func TestSets(t *testing.T) {
	const one, two, three = "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"
	set := map[string]*file{one: part(0, 3, "general.architecture"), two: part(1, 3), three: part(2, 3)}
	for name, c := range map[string]struct {
		files map[string]*file
		id    string // "" for nothing
		says  string
	}{
		"whole":             {set, "", ""},
		"whole and another": {map[string]*file{one: set[one], two: set[two], three: set[three], "z.gguf": whole(), "y-00001-of-00001.gguf": whole()}, "", ""},
		"one missing":       {map[string]*file{one: set[one], three: set[three]}, "gguf.split-missing", "1 of the 3 files of \"m\" are not there, among them number 2"},
		"two missing":       {map[string]*file{two: set[two]}, "gguf.split-missing", "number 1, 3"},
		"another's number":  {map[string]*file{one: set[one], two: part(2, 3), three: set[three]}, "gguf.split-name", "number 3 of 3 by its header, and number 2 of 3"},
		"another name":      {map[string]*file{"m.gguf": set[one]}, "gguf.split-name", "does not say so"},
		"no set":            {map[string]*file{one: whole(), two: set[two], three: set[three]}, "gguf.split-name", "is whole by its header"},
		"first undescribed": {map[string]*file{one: part(0, 3), two: set[two], three: set[three]}, "gguf.architecture", ""},
	} {
		dir := t.TempDir()
		for n, f := range c.files {
			if err := os.WriteFile(filepath.Join(dir, n), f.b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files, err := Files(dir)
		if err != nil || len(files) != len(c.files) {
			t.Fatalf("%s: %v, %v", name, files, err)
		}
		var said []schemas.Finding
		for _, f := range CheckAll("model m", files) {
			if f.Severity != schemas.SeverityPass {
				said = append(said, f)
			}
		}
		switch {
		case c.id == "" && len(said) > 0:
			t.Errorf("%s: %+v", name, said)
		case c.id != "" && (len(said) != 1 || said[0].ID != c.id || !strings.Contains(said[0].Message, c.says) || said[0].Remedy == ""):
			t.Errorf("%s: %+v, want %s %q", name, said, c.id, c.says)
		}
	}
}

func TestFilesOfAPath(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.GGUF", "c.txt"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"": "a-00001-of-00002.gguf a-00002-of-00002.gguf b.GGUF", "a-00002-of-00002.gguf": "a-00001-of-00002.gguf a-00002-of-00002.gguf", "b.GGUF": "b.GGUF", "c.txt": "c.txt"} {
		files, err := Files(filepath.Join(dir, path))
		for i := range files {
			files[i] = filepath.Base(files[i])
		}
		if got := strings.Join(files, " "); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", path, got, err, want)
		}
	}
	if _, err := Files(filepath.Join(dir, "none")); err == nil {
		t.Error("a path that is not there has files")
	}
}

// Every finding that a fault of a header makes stands in the catalog.
func TestCatalogHasEveryID(t *testing.T) {
	ids := map[string]bool{}
	for _, e := range Catalog() {
		ids[e.ID] = true
	}
	for _, file := range []string{"read.go", "check.go", "split.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`"(gguf\.[a-z-]+)"`).FindAllStringSubmatch(string(b), -1)
		if len(found) == 0 {
			t.Errorf("%s names no ID", file)
		}
		for _, m := range found {
			if !ids[m[1]] {
				t.Errorf("%s makes %s, which stands in no catalog", file, m[1])
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(whole().b)
	f.Add(begin(2, 1, 1).pair("general.architecture", "x").tensor("a", 0, 0, 1).data(4).b)
	f.Add(part(1, 3).b)
	f.Add(begin(3, 0, 1).text("general.alignment").u32(4).u32(64).b)
	f.Add([]byte("GGUF\x00\x00\x00\x03"))
	f.Fuzz(func(t *testing.T, b []byte) {
		found := check("s", "m.gguf", bytes.NewReader(b), int64(len(b)))
		if len(found) == 0 || len(found) > maxFindings+3 {
			t.Fatalf("%d findings", len(found))
		}
		passed := found[len(found)-1].Severity == schemas.SeverityPass
		h, err := Read(bytes.NewReader(b))
		if passed && err != nil {
			t.Fatalf("passes, but %v", err)
		}
		if !passed {
			return
		}
		for _, x := range h.Tensors { // what passes lies inside
			if n, known, _ := x.size(); known && h.DataStart+x.Offset+n > uint64(len(b)) {
				t.Fatalf("tensor %+v of %d bytes passes in a file of %d", x, n, len(b))
			}
		}
	})
}
