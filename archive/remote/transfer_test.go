package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"assay/archive"
	"assay/schemas"
)

// there pushes a run and pulls it into a new store, where it must be the same.
func there(t *testing.T, l *lab, s *archive.Store, run schemas.Digest, o PushOptions) (pushed, pulled Transfer, into *archive.Store) {
	t.Helper()
	ctx := context.Background()
	o.Options = l.options()
	pushed, err := Push(ctx, s.Layout, run, l.ref("lab/runs:base"), o)
	must(t, err)
	into = newStore(t)
	pulled, err = Pull(ctx, into, l.ref("lab/runs:base"), PullOptions{Options: l.options(), Tags: []string{"got"}})
	must(t, err)
	if pulled.Run != run || pushed.Run != run {
		t.Fatalf("pushed %s, pulled %s, want %s", pushed.Run, pulled.Run, run)
	}
	wantValid(t, into, run)
	ref, err := into.Resolve(ctx, "got")
	must(t, err)
	if ref.Digest != run {
		t.Errorf("tag got is %s, want %s", ref.Digest, run)
	}
	return pushed, pulled, into
}

func TestThereAndBack(t *testing.T) {
	s := newStore(t)
	first := sealRun(t, s, "first", someFiles(bigFile, 1))
	run := sealRun(t, s, "second", someFiles(bigFile, 2), first)
	l := newLab(t, nil)
	pushed, pulled, into := there(t, l, s, run, PushOptions{})
	if len(pushed.Sources) != 1 || pushed.Sources[0] != first || len(pulled.Sources) != 1 || pulled.Sources[0] != first {
		t.Errorf("source runs: pushed %v, pulled %v, want %s", pushed.Sources, pulled.Sources, first)
	}
	wantValid(t, into, first)
	if pushed.BytesMoved != pushed.Bytes || pushed.BlobsMoved != pushed.Blobs || pulled.BytesMoved != pushed.Bytes {
		t.Errorf("pushed %+v, pulled %+v: not every byte once", pushed, pulled)
	}
	a, err := s.ManifestBytes(run)
	must(t, err)
	b, err := into.ManifestBytes(run)
	must(t, err)
	if !bytes.Equal(a, b) {
		t.Error("the manifests differ")
	}

	// Again: nothing is moved.
	ctx := context.Background()
	again, err := Push(ctx, s.Layout, run, l.ref("lab/runs:base"), PushOptions{Options: l.options()})
	must(t, err)
	back, err := Pull(ctx, into, l.ref("lab/runs@"+string(run)), PullOptions{Options: l.options()})
	must(t, err)
	if again.BytesMoved != 0 || back.BytesMoved != 0 || back.Blobs != pulled.Blobs {
		t.Errorf("moved again: push %+v, pull %+v", again, back)
	}

	// Without source runs.
	alone := newStore(t)
	_, err = Pull(ctx, alone, l.ref("lab/runs:base"), PullOptions{Options: l.options(), NoSources: true})
	must(t, err)
	if alone.HasRun(ctx, first) || !alone.HasRun(ctx, run) {
		t.Error("--no-sources pulled the source run, or not the run")
	}
	_, err = Push(ctx, alone.Layout, run, l.ref("lab/other"), PushOptions{Options: l.options()})
	if err == nil || !strings.Contains(err.Error(), "--no-sources") {
		t.Errorf("push without its source run: %v", err)
	}
	_, err = Push(ctx, alone.Layout, run, l.ref("lab/other:t"), PushOptions{Options: l.options(), NoSources: true})
	must(t, err)
	missing, err := Pull(ctx, newStore(t), l.ref("lab/other:t"), PullOptions{Options: l.options()})
	must(t, err)
	if len(missing.Missing) != 1 || missing.Missing[0] != first {
		t.Errorf("missing source runs %v, want %s", missing.Missing, first)
	}
}

func TestSharedBlobs(t *testing.T) {
	s := newStore(t)
	files := someFiles(bigFile, 3)
	one := sealRun(t, s, "one", files)
	two := sealRun(t, s, "two", files)
	l := newLab(t, nil)
	ctx := context.Background()
	_, err := Push(ctx, s.Layout, one, l.ref("lab/runs:one"), PushOptions{Options: l.options()})
	must(t, err)
	out, err := Push(ctx, s.Layout, two, l.ref("lab/runs:two"), PushOptions{Options: l.options()})
	must(t, err)
	if out.BytesMoved > 64<<10 {
		t.Errorf("%d bytes sent of a run whose files are there", out.BytesMoved)
	}
	moved, err := Push(ctx, s.Layout, two, l.ref("lab/runs:one"), PushOptions{Options: l.options()})
	must(t, err)
	if moved.Replaced != one {
		t.Errorf("the tag was %s before, want %s", moved.Replaced, one)
	}
}

func TestProgress(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 4))
	l := newLab(t, nil)
	var last Progress
	calls := 0
	o := l.options()
	o.Progress = func(p Progress) { last = p; calls++ }
	out, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
	must(t, err)
	if last.Done != last.Total || last.Total != out.Bytes || last.Phase != "push" || calls < 10 {
		t.Errorf("push ends at %+v after %d calls, want %d bytes", last, calls, out.Bytes)
	}
	calls = 0
	_, err = Pull(context.Background(), newStore(t), l.ref("a/b:t"), PullOptions{Options: o})
	must(t, err)
	if last.Done != last.Total || last.Total != out.Bytes || last.Phase != "pull" || calls < 10 {
		t.Errorf("pull ends at %+v after %d calls, want %d bytes", last, calls, out.Bytes)
	}
}

func isBlob(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/sha256:") }

func isUpload(r *http.Request) bool { return strings.Contains(r.URL.Path, "/blobs/uploads/") }

func isManifest(r *http.Request) bool { return strings.Contains(r.URL.Path, "/manifests/") }

// kind is the path, but one for all uploads: the registry of the library cannot
// say how far an upload is, so a broken one begins again under another path.
func kind(r *http.Request) string {
	if isUpload(r) {
		return "upload"
	}
	return r.URL.Path
}

func refuse(w http.ResponseWriter, code int, rule, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, rule, message)
}

func breakOff(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// TestFaults sends a run through faults that must not be seen by the user.
func TestFaults(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 5))
	for name, c := range map[string]struct {
		fault func() middleware
		check func(t *testing.T, l *lab)
	}{
		"429 with Retry-After": {func() middleware {
			first := once(1)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if isManifest(r) && r.Method == http.MethodPut && first(r.URL.Path) {
					w.Header().Set("Retry-After", "77")
					refuse(w, 429, "TOOMANYREQUESTS", "slow down")
					return
				}
				next.ServeHTTP(w, r)
			}
		}, func(t *testing.T, l *lab) {
			n := 0
			for _, d := range l.sleeps {
				if d >= 77*time.Second {
					n++
				}
			}
			if n == 0 {
				t.Errorf("waits %v: Retry-After was not honoured", l.sleeps)
			}
		}},
		"5xx": {func() middleware {
			first := once(2)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if first(r.Method + kind(r)) {
					refuse(w, 503, "UNAVAILABLE", "not now")
					return
				}
				next.ServeHTTP(w, r)
			}
		}, nil},
		"reset": {func() middleware {
			first := once(1)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if first(r.Method + kind(r)) {
					breakOff(w)
					return
				}
				next.ServeHTTP(w, r)
			}
		}, nil},
		"relative Location with state": {func() middleware {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if isUpload(r) && r.Method != http.MethodPost && r.URL.Query().Get("_state") != "a b&c" {
					refuse(w, 400, "BLOB_UPLOAD_UNKNOWN", "the state is lost")
					return
				}
				next.ServeHTTP(rewriter{w, func(h http.Header) {
					if at := h.Get("Location"); strings.Contains(at, "/blobs/uploads/") {
						h.Set("Location", "../"+at[strings.Index(at, "uploads/"):]+"?_state=a%20b%26c")
						if r.Method != http.MethodPost {
							h.Set("Location", at+"?_state=a%20b%26c")
						}
					}
				}}, r)
			}
		}, nil},
		"absolute Location": {func() middleware {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				next.ServeHTTP(rewriter{w, func(h http.Header) {
					if at := h.Get("Location"); at != "" {
						h.Set("Location", "http://"+r.Host+at)
					}
				}}, r)
			}
		}, nil},
		"no pieces": {func() middleware {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method == http.MethodPatch {
					refuse(w, 405, "UNSUPPORTED", "whole blobs only")
					return
				}
				next.ServeHTTP(w, r)
			}
		}, nil},
		"416 for a piece that had arrived": {func() middleware {
			first := once(1)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Method == http.MethodPatch && strings.HasPrefix(r.Header.Get("Content-Range"), "1048576-") && first("patch") {
					next.ServeHTTP(discard{}, r)
					w.WriteHeader(416)
					return
				}
				answerSession(w, r, next)
			}
		}, func(t *testing.T, l *lab) {
			if l.sent > bigFile+256<<10 {
				t.Errorf("%d bytes were sent for a blob of %d: a piece went twice", l.sent, bigFile)
			}
		}},
		"HEAD lies about the length": {func() middleware {
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if isBlob(r) && r.Method == http.MethodHead {
					w.Header().Set("Content-Length", "12345")
					w.WriteHeader(200)
					return
				}
				next.ServeHTTP(w, r)
			}
		}, nil},
		"truncated bodies": {func() middleware {
			first := once(2)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if (isBlob(r) || isManifest(r)) && r.Method == http.MethodGet && first(r.URL.Path) {
					next.ServeHTTP(&cutter{ResponseWriter: w, left: 100}, r)
					breakOff(w)
					return
				}
				next.ServeHTTP(w, r)
			}
		}, nil},
		"truncated bodies without ranges": {func() middleware {
			first := once(2)
			return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				r.Header.Del("Range")
				if isBlob(r) && r.Method == http.MethodGet && first(r.URL.Path) {
					next.ServeHTTP(&cutter{ResponseWriter: w, left: 100}, r)
					breakOff(w)
					return
				}
				next.ServeHTTP(w, r)
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, c.fault())
			there(t, l, s, run, PushOptions{})
			if c.check != nil {
				c.check(t, l)
			}
		})
	}
}

// rewriter changes the headers of an answer.
type rewriter struct {
	http.ResponseWriter
	change func(http.Header)
}

func (r rewriter) WriteHeader(code int) {
	r.change(r.Header())
	r.ResponseWriter.WriteHeader(code)
}

// discard is an answer that does not arrive.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// cutter lets only so many bytes of a body through, and flushes them.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	n := min(len(b), c.left)
	if n > 0 {
		_, _ = c.ResponseWriter.Write(b[:n])
		_ = http.NewResponseController(c.ResponseWriter).Flush()
	}
	c.left -= n
	return len(b), nil
}

// answerSession answers how much of an upload there is, which the registry of
// the library cannot: an empty PATCH at a wrong place tells it.
func answerSession(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !isUpload(r) || r.Method != http.MethodGet {
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Location", r.URL.Path)
	w.Header().Set("Range", "0-2097151") // the second piece had arrived
	w.WriteHeader(http.StatusNoContent)
}

// TestRefusals are answers that nobody can do anything about: the error names
// the rule, and nothing is left in the store.
func TestRefusals(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(5000, 6))
	for name, c := range map[string]struct {
		fault middleware
		pull  bool
		want  []string
		is    func(error) bool
	}{
		"no such tag":         {nil, true, []string{"404", "MANIFEST_UNKNOWN|NAME_UNKNOWN", "no such tag"}, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
		"artifactType":        {refuseArtifacts, false, []string{"415", "MANIFEST_INVALID", "artifactType is not allowed", "--compat"}, nil},
		"method not allowed":  {on(isManifest, http.MethodPut, 405, "UNSUPPORTED", "no"), false, []string{"405", "UNSUPPORTED", "--compat"}, nil},
		"manifest too long":   {on(isManifest, http.MethodPut, 413, "SIZE_INVALID", "at most 1 MB"), false, []string{"413", "at most 1 MB", "longer than it allows"}, nil},
		"denied":              {on(isUpload, http.MethodPost, 403, "DENIED", "read only"), false, []string{"403", "DENIED", "read only", "no credentials were found"}, nil},
		"long Retry-After":    {later, false, []string{"429", "asks to wait 2h"}, nil},
		"always down":         {on(func(r *http.Request) bool { return isBlob(r) }, http.MethodHead, 503, "UNAVAILABLE", ""), false, []string{"503", "after 6 attempts"}, nil},
		"a message too long":  {on(isUpload, http.MethodPost, 400, "X", strings.Repeat("long ", 1000)), false, []string{"400", "long ..."}, nil},
		"no Location":         {noLocation, false, []string{"no Location"}, nil},
		"rewritten manifests": {rewriteManifests, false, []string{"other bytes than were sent", "sha256:"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, c.fault)
			into := newStore(t)
			var err error
			if c.pull {
				_, err = Pull(context.Background(), into, l.ref("a/b:nothing"), PullOptions{Options: l.options()})
			} else {
				_, err = Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				found := false
				for _, one := range strings.Split(w, "|") {
					found = found || strings.Contains(err.Error(), one)
				}
				if !found {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
			if len(err.Error()) > 1500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if c.is != nil && !c.is(err) {
				t.Errorf("error %v is of the wrong sort", err)
			}
		})
	}
}

func on(what func(*http.Request) bool, method string, code int, rule, message string) middleware {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if what(r) && r.Method == method {
			refuse(w, code, rule, message)
			return
		}
		next.ServeHTTP(w, r)
	}
}

func later(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if isUpload(r) {
		w.Header().Set("Retry-After", "7200")
		refuse(w, 429, "TOOMANYREQUESTS", "")
		return
	}
	next.ServeHTTP(w, r)
}

func noLocation(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(rewriter{w, func(h http.Header) { h.Del("Location") }}, r)
}
