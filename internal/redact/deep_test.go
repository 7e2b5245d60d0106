package redact

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

type packer func(io.Writer) io.WriteCloser

var packers = map[string]packer{
	"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"zlib": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"zstd": func(w io.Writer) io.WriteCloser {
		enc, _ := zstd.NewWriter(w) // no options that could be wrong
		return enc
	},
	"zip": func(w io.Writer) io.WriteCloser {
		z := zip.NewWriter(w)
		f, _ := z.Create("member") // into memory
		return struct {
			io.Writer
			io.Closer
		}{f, z}
	},
}

func pack(t *testing.T, p packer, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := p(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFindDeepLooksIntoEveryPackingOfEveryOther(t *testing.T) {
	s := New(map[string]string{"canary-0123": "[x]"})
	text := []byte(strings.Repeat("padding ", 5000) + "canary-0123" + strings.Repeat(" more", 500))
	for outer, po := range packers {
		for inner, pi := range packers {
			b := pack(t, po, pack(t, pi, text))
			if mark, err := s.FindDeep(bytes.NewReader(b)); mark != "[x]" || err != nil {
				t.Errorf("%s in %s: %q %v", inner, outer, mark, err)
			}
		}
		if mark, err := s.FindDeep(bytes.NewReader(pack(t, po, []byte("nothing here")))); mark != "" || err != nil {
			t.Errorf("%s: %q %v", outer, mark, err)
		}
	}
	members := append(pack(t, packers["gzip"], []byte("first")), pack(t, packers["gzip"], text)...)
	if mark, _ := s.FindDeep(bytes.NewReader(members)); mark != "[x]" {
		t.Error("the second member of a gzip file was not looked at")
	}
}

func FuzzFindDeep(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Add([]byte("PK\x03\x04"))
	f.Add([]byte("BZh91AY"))
	f.Add([]byte("x\x9c"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00"))
	s := New(map[string]string{"canary-0123": "[x]"})
	f.Fuzz(func(t *testing.T, b []byte) {
		mark, err := s.FindDeep(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte("canary-0123")) && mark == "" {
			t.Fatal("missed")
		}
	})
}
