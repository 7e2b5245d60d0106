package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"assay/archive"
	"assay/schemas"
)

func TestEscape(t *testing.T) {
	for in, want := range map[string][2]string{ // of text, of a name
		"plain é 日本":        {"plain é 日本", "plain é 日本"},
		"a\x1b]0;pwn\x07b":  {`a\x1b]0;pwn\x07b`, `a\x1b]0;pwn\x07b`},
		"two\nlines\tand\r": {"two\nlines\tand\\x0d", `two\x0alines\x09and\x0d`},
		"\u202egnp":         {`\u202egnp`, `\u202egnp`},
		"\u009b1m":          {`\u009b1m`, `\u009b1m`},
		"\xff\x7f":          {`\xff\x7f`, `\xff\x7f`},
		"":                  {"", ""},
	} {
		if got := [2]string{safeText(in), safeName(in)}; got != want {
			t.Errorf("%q is printed as %q, want %q", in, got, want)
		}
	}
}

// Names of files and tags reach a terminal in no form that it obeys.
func TestNamesAreEscaped(t *testing.T) {
	evil := "a\x1b[31m\nb"
	var out bytes.Buffer
	if err := writeFiles(&out, []schemas.TreeEntry{{Path: evil, Kind: schemas.EntryFile}, {Path: "l", Kind: schemas.EntrySymlink, Target: evil}}); err != nil {
		t.Fatal(err)
	}
	table := newTable("name")
	table.row(evil)
	out.WriteString(table.String())
	out.WriteString(findingText(schemas.Finding{Subject: evil, Path: evil, Paths: []string{evil}, File: evil, Line: 1}, ""))
	if text := out.String(); strings.ContainsAny(text, "\x1b") || strings.Contains(text, "\nb") || strings.Count(text, `a\x1b[31m\x0ab`) < 6 {
		t.Errorf("printed %q", text)
	}
}

// Where no bar can be drawn a long operation says how far it is, every ten seconds
// and not before.
func TestPlainProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		p := newPlainProgress(&out, plainEvery)
		time.Sleep(5 * time.Second)
		p.show(archive.Progress{Phase: archive.PhaseVerify, Done: 1 << 20, Total: 4 << 20})
		time.Sleep(4 * time.Second)
		synctest.Wait()
		early := out.String()
		time.Sleep(2 * time.Second)
		p.show(archive.Progress{Phase: archive.PhaseSync})
		time.Sleep(10 * time.Second)
		p.show(archive.Progress{Phase: archive.PhaseScan, Done: 7})
		time.Sleep(10 * time.Second)
		p.show(archive.Progress{Phase: archive.PhaseMark, Done: 7, Total: 7})
		time.Sleep(10 * time.Second)
		p.close()
		if want := "verify: 1.0 MiB of 4.0 MiB (25%)\nsync: waiting for the disk\nscan: 7\n"; out.String() != want || early != "" {
			t.Errorf("early %q, in all %q, want %q", early, out.String(), want)
		}
	})
}

// lockedBuffer may be read while something else writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Help keeps to the format that was asked for.
func TestHelpAsJSON(t *testing.T) {
	for _, args := range [][]string{{"--help", "--format", "json"}, {"ls", "--help", "--format", "json"}, {"--format", "json", "ls", "--help"}} {
		var out, errs bytes.Buffer
		code := Run(context.Background(), args, strings.NewReader(""), &out, &errs)
		var doc helpDoc
		if err := json.Unmarshal(out.Bytes(), &doc); err != nil || code != ExitOK || !strings.Contains(doc.Help, "USAGE") {
			t.Errorf("%q: %d, %v: %s%s", args, code, err, out.String(), errs.String())
		}
	}
}
