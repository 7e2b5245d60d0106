package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The script commands of our own.

// waitLimit is how long a script waits for a condition.
const waitLimit = 60 * time.Second

// exits CODE PROGRAM [ARG...] runs a program that must end with exactly CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// json FILE [PATH WANT]... checks that FILE (stdout for the last command's) is
// exactly one JSON document, and that the values at dotted paths print as wanted.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args)%2 != 1 {
		ts.Fatalf("usage: json FILE [PATH WANT]...")
	}
	doc := oneDocument(ts, args[0])
	for i := 1; i < len(args); i += 2 {
		got, err := at(doc, args[i])
		if err != nil {
			ts.Fatalf("%s: %v", args[0], err)
		}
		if printed := printed(got); printed != args[i+1] {
			ts.Fatalf("%s: %s is %s, want %s", args[0], args[i], printed, args[i+1])
		}
	}
}

// jsonenv VAR FILE PATH sets a variable to a value of a JSON document.
func jsonEnv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: jsonenv VAR FILE PATH")
	}
	v, err := at(oneDocument(ts, args[1]), args[2])
	ts.Check(err)
	ts.Setenv(args[0], printed(v))
}

func oneDocument(ts *testscript.TestScript, file string) any {
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(file)))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		ts.Fatalf("%s is not JSON: %v\n%s", file, err, ts.ReadFile(file))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		ts.Fatalf("%s: something follows the JSON document", file)
	}
	return doc
}

// at follows a path like runs.0.verdict; "count" is the length of a list.
func at(doc any, path string) (any, error) {
	for _, name := range strings.Split(path, ".") {
		switch x := doc.(type) {
		case map[string]any:
			v, ok := x[name]
			if !ok {
				return nil, fmt.Errorf("%s: there is no %q", path, name)
			}
			doc = v
		case []any:
			if name == "count" {
				doc = len(x)
				continue
			}
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(x) {
				return nil, fmt.Errorf("%s: no element %s in a list of %d", path, name, len(x))
			}
			doc = x[i]
		default:
			return nil, fmt.Errorf("%s: %q is below a scalar", path, name)
		}
	}
	return doc, nil
}

func printed(v any) string {
	switch v.(type) {
	case map[string]any, []any:
		b, _ := json.Marshal(v) // it came from JSON
		return string(b)
	}
	return fmt.Sprint(v)
}

// damage flip|cut|remove STORE MEDIA damages the first blob of the last run whose
// media type holds MEDIA, and sets $BLOB to its digest.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: damage flip|cut|remove STORE MEDIA")
	}
	store := ts.MkAbs(args[1])
	index, err := at(oneDocument(ts, filepath.Join(args[1], "index.json")), "manifests")
	ts.Check(err)
	list := index.([]any)
	digest := list[len(list)-1].(map[string]any)["digest"].(string)
	if args[2] != "manifest" {
		manifest := oneDocument(ts, filepath.Join(args[1], "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))).(map[string]any)
		digest = ""
		for _, l := range append([]any{manifest["config"]}, manifest["layers"].([]any)...) {
			layer := l.(map[string]any)
			if strings.Contains(layer["mediaType"].(string), args[2]) {
				digest = layer["digest"].(string)
				break
			}
		}
	}
	if digest == "" {
		ts.Fatalf("no blob of media type %s", args[2])
	}
	ts.Setenv("BLOB", digest)
	path := filepath.Join(store, "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))
	ts.Check(os.Chmod(path, 0o644))
	b, err := os.ReadFile(path)
	ts.Check(err)
	switch args[0] {
	case "flip":
		b[len(b)/2] ^= 1
		ts.Check(os.WriteFile(path, b, 0o644))
	case "cut":
		ts.Check(os.WriteFile(path, b[:len(b)/2], 0o644))
	case "remove":
		ts.Check(os.Remove(path))
	default:
		ts.Fatalf("damage: %s?", args[0])
	}
}

// waitline FILE [TEXT] waits until a whole line of FILE holds TEXT.
func waitLine(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: waitline FILE [TEXT]")
	}
	text := ""
	if len(args) == 2 {
		text = args[1]
	}
	path := ts.MkAbs(args[0])
	holds := func() bool {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			ts.Fatalf("%v", err)
		}
		end := bytes.LastIndexByte(b, '\n')
		return end >= 0 && strings.Contains(string(b[:end]), text)
	}
	wait(ts, holds, "a line with %q in %s", text, args[0])
}

// waitgone FILE waits until the process whose id FILE holds is gone.
func waitGone(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitgone FILE")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	gone := func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
	wait(ts, gone, "the end of process %d", pid)
}

// wait polls: nothing tells when another process has written or ended.
func wait(ts *testscript.TestScript, holds func() bool, format string, args ...any) {
	limit := time.Now().Add(waitLimit)
	for !holds() {
		if time.Now().After(limit) {
			ts.Fatalf("waited %s for %s", waitLimit, fmt.Sprintf(format, args...))
		}
		time.Sleep(10 * time.Millisecond)
	}
}
