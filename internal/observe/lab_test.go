package observe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"assay/schemas"
)

// service is a real server with handlers for some paths.
func service(t *testing.T, handlers map[string]http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	for path, h := range handlers {
		mux.HandleFunc(path, h)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

func text(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) }
}

// quiet is a configuration that looks at nothing.
func quiet() Config {
	c := ConfigOf(nil)
	c.Metrics, c.Snapshot, c.Events, c.Host = "off", "off", "off", "off"
	c.MetricsInterval, c.GPUInterval, c.HostInterval = minInterval, minInterval, minInterval
	return c
}

// nothing is a load that is over at once.
func nothing() {}

// until is a load that lasts until a condition holds.
func until(t *testing.T, holds func() bool) func() {
	return func() {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("it never came to hold")
				return
			}
		}
	}
}

// hasLines says whether a file has so many.
func hasLines(dir, file string, n int) func() bool {
	return func() bool {
		b, err := os.ReadFile(filepath.Join(dir, file))
		return err == nil && bytes.Count(b, []byte{'\n'}) >= n
	}
}

// observe records while a load lasts and returns what was seen.
func observe(t *testing.T, opts Options, load func()) (schemas.Observed, []schemas.Finding, error) {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	r, err := Start(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Begin(time.Now())
	load()
	seen, findings, err := r.End(context.Background())
	if werr := r.Write(seen); werr != nil {
		t.Error(werr)
	}
	b, encodeErr := schemas.Encode(seen)
	if encodeErr != nil || !json.Valid(b) {
		t.Errorf("what was seen is no document: %v", encodeErr)
	}
	return seen, findings, err
}

func sourceOf(t *testing.T, o schemas.Observed, name string) schemas.ObservedSource {
	t.Helper()
	for _, s := range o.Sources {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no source %s", name)
	return schemas.ObservedSource{}
}

// lines reads a file of JSON lines.
func lines(t *testing.T, dir, file string) []map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	var out []map[string]any
	for rd := bufio.NewReader(bytes.NewReader(b)); ; {
		line, err := rd.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return out
		}
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%s: %v: %.200q", file, err, line)
		}
		out = append(out, m)
	}
}

// runChild runs a program as a stage's supervisor would.
func runChild(ctx context.Context, argv, env []string, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, stdout, stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		err = nil
	}
	return cmd.ProcessState.ExitCode(), err
}

func benchServer(b *testing.B, h http.Handler) string {
	b.Helper()
	s := httptest.NewServer(h)
	b.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}
