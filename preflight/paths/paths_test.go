package paths

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/schemas"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, mode os.FileMode) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(at(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at(name), []byte("x"), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("file", 0o644)
	write("full/file", 0o644)
	write("closed", 0o000)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(at("empty"), 0o755))
	must(os.WriteFile(at("nothing"), nil, 0o644))
	must(os.Symlink(at("full"), at("link")))
	must(os.Symlink("gone", at("dangling")))
	must(os.Symlink("loop", at("loop")))
	l, err := net.Listen("unix", at("socket"))
	must(err)
	defer l.Close()

	for _, c := range []struct {
		path, id string
		severity schemas.Severity
		says     string
	}{
		{"file", "path.readable", schemas.SeverityPass, "readable file"},
		{"nothing", "path.readable", schemas.SeverityPass, "readable file"},
		{"full", "path.readable", schemas.SeverityPass, "readable folder"},
		{"link", "path.readable", schemas.SeverityPass, "readable folder"},
		{"empty", "path.empty", schemas.SeverityError, "empty folder"},
		{"dangling", "path.dangling", schemas.SeverityError, "link to gone"},
		{"missing/deep/file", "path.missing", schemas.SeverityError, "does not exist"},
		{"file/below", "path.readable", schemas.SeverityUnknown, "not a directory"},
		{"loop", "path.readable", schemas.SeverityUnknown, "too many levels"},
		{"socket", "path.kind", schemas.SeverityError, "neither a regular file nor a folder"},
	} {
		f := Check("subject", at(c.path))
		if f.ID != c.id || f.Severity != c.severity || !strings.Contains(f.Message, c.says) || f.Subject != "subject" {
			t.Errorf("%s: %+v, want %s %s %q", c.path, f, c.id, c.severity, c.says)
		}
		if c.severity != schemas.SeverityPass && f.Remedy == "" {
			t.Errorf("%s: no remedy", c.path)
		}
		if c.severity == schemas.SeverityPass && (f.File != "" || strings.Contains(f.Message, dir)) {
			t.Errorf("%s: a pass names this machine's folder: %+v", c.path, f)
		}
	}
	if f := Check("s", at("missing/deep")); !strings.Contains(f.Remedy, dir) {
		t.Errorf("the remedy does not name the folder that is there: %q", f.Remedy)
	}
	if os.Geteuid() != 0 { // root reads everything
		if f := Check("s", at("closed")); f.ID != "path.permission" || f.Severity != schemas.SeverityError {
			t.Errorf("closed: %+v", f)
		}
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	tool, plain := filepath.Join(dir, "tool"), filepath.Join(dir, "plain")
	for path, mode := range map[string]os.FileMode{tool: 0o755, plain: 0o644} {
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, path, id string }{
		{"tool", "/nowhere:" + dir, "program.found"},
		{tool, "", "program.found"},
		{"plain", dir, "program.permission"},
		{"tool", "/nowhere", "program.missing"},
		{"tool", ".", "program.missing"},
		{dir, "", "program.permission"},
		{"", dir, "program.missing"},
	} {
		f := Program("s", c.name, c.path)
		if f.ID != c.id || (f.Severity == schemas.SeverityPass) != (c.id == "program.found") {
			t.Errorf("%s in %s: %+v, want %s", c.name, c.path, f, c.id)
		}
	}
}
