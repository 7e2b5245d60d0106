package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/archive"
	"assay/schemas"
)

// faulty pushes a run to a lab whose faults begin afterwards.
func faulty(t *testing.T, files map[string]string, fault middleware) (*lab, *archive.Store, schemas.Digest) {
	t.Helper()
	s := newStore(t)
	run := sealRun(t, s, "run", files)
	var mu sync.Mutex
	armed := false
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		on := armed
		mu.Unlock()
		if on {
			fault(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	})
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
	must(t, err)
	mu.Lock()
	armed = true
	mu.Unlock()
	return l, s, run
}

func blobGet(r *http.Request) bool { return isBlob(r) && r.Method == http.MethodGet }

// TestGoneBlobs is a registry that has lost the blobs of a run: whoever reads them,
// they are missing from the archive, which is no fault of the reference.
func TestGoneBlobs(t *testing.T) {
	l, _, run := faulty(t, someFiles(bigFile, 31), on(blobGet, http.MethodGet, 404, "BLOB_UNKNOWN", "gone"))
	ctx := context.Background()
	want := func(what string, err error) {
		t.Helper()
		var bad *archive.CorruptError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), "push it again from a store that has it") || strings.Contains(err.Error(), "no such tag") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	_, err := Pull(ctx, newStore(t), l.ref("a/b:t"), PullOptions{Options: l.options()})
	want("pull", err)
	v := view(t, l.ref("a/b:t"), l.options())
	_, err = v.Layout.Run(ctx, run)
	want("read", err)
	_, err = v.Layout.SaveTar(ctx, run, "", filepath.Join(t.TempDir(), "a.tar"))
	want("export", err)
	_, err = Push(ctx, v.Layout, run, newLab(t, nil).ref("c/d:t"), PushOptions{Options: l.options(), NoSources: true})
	want("push", err)
	verdict, err := v.Layout.Verify(ctx, run)
	must(t, err)
	if verdict.Verdict != archive.Invalid || v.Err() != nil || !strings.Contains(verdict.Findings[0].Remedy, "push it again") {
		t.Errorf("verify: %+v, %v", verdict, v.Err())
	}
}

// TestNoRoomForBlobs reads a run whose blobs find no room on this machine: that is
// no fault of the archive.
func TestNoRoomForBlobs(t *testing.T) {
	for name, spoil := range map[string]func(dir string){
		"no folder": func(dir string) { must(t, os.RemoveAll(dir)) },
		"no room":   nil,
	} {
		l, _, run := faulty(t, someFiles(5000, 32), func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) })
		dir := t.TempDir()
		ctx := context.Background()
		v, err := Open(ctx, l.ref("a/b:t"), dir, l.options())
		must(t, err)
		v.spool.at = map[schemas.Digest]*spooled{} // what Open itself read
		if spoil != nil {
			spoil(dir)
		} else {
			v.spool.create = func() (*os.File, error) {
				link := filepath.Join(dir, "full")
				_ = os.Remove(link)
				must(t, os.Symlink("/dev/full", link))
				return os.OpenFile(link, os.O_WRONLY, 0)
			}
		}
		verdict, err := v.Layout.Verify(ctx, run)
		must(t, err)
		if err := v.Err(); !errors.Is(err, archive.ErrUnreachable) || !strings.Contains(err.Error(), "TMPDIR") || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: error %v, want one about %s", name, err, dir)
		}
		for _, f := range verdict.Findings {
			if f.Severity == schemas.SeverityError {
				t.Errorf("%s: finding %+v", name, f)
			}
		}
		if _, err := v.Layout.Run(ctx, run); !errors.Is(err, archive.ErrUnreachable) || corrupt(err) {
			t.Errorf("%s: read: %v", name, err)
		}
	}
}

// TestImagesAreNoRuns names images and what else a registry keeps.
func TestImagesAreNoRuns(t *testing.T) {
	image := func(media string, more map[string]any) []byte {
		m := map[string]any{"schemaVersion": 2, "mediaType": media, "layers": []any{}}
		for k, v := range more {
			m[k] = v
		}
		b, err := json.Marshal(m)
		must(t, err)
		return b
	}
	config := []byte(`{"architecture":"amd64","os":"linux"}`)
	ociConfig := map[string]any{"config": descriptor{MediaType: archive.MediaImageConfig, Digest: schemas.DigestOf(config), Size: int64(len(config))}}
	for name, c := range map[string]struct {
		media string
		body  []byte
		want  string
	}{
		"image":          {mediaManifest, image(mediaManifest, ociConfig), "it is an image, not a run of assay"},
		"Docker's image": {mediaDocker + "2+json", image(mediaDocker+"2+json", map[string]any{"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json"}}), "it is an image, not a run of assay"},
		"index":          {mediaIndex, image(mediaIndex, map[string]any{"manifests": []any{}}), "it is an image index, not a run of assay"},
		"Docker's list":  {mediaDockerList, image(mediaDockerList, map[string]any{"manifests": []any{}}), "it is an image index, not a run of assay"},
		"artifact":       {mediaManifest, image(mediaManifest, map[string]any{"artifactType": "application/x"}), `type "application/x", not a run of assay`},
		"config gone": {mediaManifest, image(mediaManifest, map[string]any{"config": descriptor{MediaType: archive.MediaImageConfig, Digest: schemas.DigestOf([]byte("gone")), Size: 4}}),
			"it is an image, not a run of assay"},
	} {
		l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			switch {
			case isManifest(r):
				w.Header().Set("Content-Type", c.media)
				_, _ = w.Write(c.body)
			case strings.HasSuffix(r.URL.Path, string(schemas.DigestOf(config))):
				_, _ = w.Write(config)
			default:
				next.ServeHTTP(w, r)
			}
		})
		ctx := context.Background()
		_, pull := Pull(ctx, newStore(t), l.ref("a/b:t"), PullOptions{Options: l.options()})
		_, open := Open(ctx, l.ref("a/b:t"), t.TempDir(), l.options())
		_, check := Check(ctx, l.ref("a/b:t"), l.options())
		for what, err := range map[string]error{"pull": pull, "open": open, "check": check} {
			if !errors.Is(err, ErrNotRun) || corrupt(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: error %v", name, what, err)
			}
		}
	}
}

// TestNoRegistry is what else answers with 200.
func TestNoRegistry(t *testing.T) {
	for name, c := range map[string]struct{ media, body string }{
		"captive portal": {"text/html; charset=utf-8", "<html>Sign in</html>"},
		"deep JSON":      {mediaManifest, strings.Repeat("[", 1_000_000)},
		"plain text":     {"text/plain", "hello"},
		"a list":         {mediaManifest, "[]"},
	} {
		l := newLab(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", c.media)
			_, _ = w.Write([]byte(c.body))
		})
		ctx := context.Background()
		_, pull := Pull(ctx, newStore(t), l.ref("a/b:t"), PullOptions{Options: l.options()})
		_, open := Open(ctx, l.ref("a/b:t"), t.TempDir(), l.options())
		for what, err := range map[string]error{"pull": pull, "open": open} {
			if err == nil || !strings.Contains(err.Error(), "does not look like a registry") || !strings.Contains(err.Error(), l.host()) || !strings.Contains(err.Error(), c.media) || len(err.Error()) > 1000 {
				t.Errorf("%s: %s: error %v", name, what, err)
			}
		}
	}
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 33))
	l := newLab(t, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html>"))
	})
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
	if err == nil || !strings.Contains(err.Error(), "does not look like a registry") {
		t.Errorf("push: error %v", err)
	}
}

// TestWhoAnswers names the host that is at fault when a redirect leads elsewhere.
func TestWhoAnswers(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer refusing.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	other := strings.Replace(strings.TrimPrefix(refusing.URL, "http://"), "127.0.0.1", "localhost", 1)
	for to, c := range map[string]struct {
		want  []string
		not   string
		asked int // how often the registry is asked
	}{
		"http://" + other + "/x":                            {[]string{"leads to " + other, "answers 401", "none of yours"}, "config.json", 1},
		closed.URL + "/x":                                   {[]string{"leads to " + strings.TrimPrefix(closed.URL, "http://"), "refused", "after 6 attempts"}, "", attempts},
		"http://198.51.100.7/x":                             {[]string{"leads to http://198.51.100.7", "--plain-http allows it for the host of the reference only"}, "does not speak TLS", 1},
		"file:///etc/passwd":                                {[]string{"file:", "refused"}, "after 6", 1},
		"https://127.0.0.1:99999/x":                         {[]string{"invalid port"}, "after 6", 1},
		strings.Replace(refusing.URL, "http:", "https:", 1): {[]string{"does not speak TLS", "leads to https://127.0.0.1"}, "--plain-http", attempts},
	} {
		s := newStore(t)
		run := sealRun(t, s, "run", someFiles(100, 34))
		armed := false
		l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			basicAuth("me", password)(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if armed && isManifest(r) {
					w.Header().Set("Location", to)
					w.WriteHeader(http.StatusTemporaryRedirect)
					return
				}
				next.ServeHTTP(w, r)
			}))
		})
		o := l.options()
		o.tune.getenv = login(t, l.host(), "me", password)
		ctx := context.Background()
		_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
		must(t, err)
		armed = true
		before := l.count("GET /v2/a/b/manifests/")
		_, err = Check(ctx, l.ref("a/b:t"), o)
		if err == nil {
			t.Errorf("%s: no error", to)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", to, err, w)
			}
		}
		if c.not != "" && strings.Contains(err.Error(), c.not) {
			t.Errorf("%s: error %q says %q", to, err, c.not)
		}
		if n := l.count("GET /v2/a/b/manifests/") - before; n != c.asked {
			t.Errorf("%s: asked %d times, want %d", to, n, c.asked)
		}
	}
}

// TestRulesAndHints keeps what registries say, and adds what fits.
func TestRulesAndHints(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(5000, 35))
	answer := func(what func(*http.Request) bool, method string, code int, body string) middleware {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if what(r) && r.Method == method {
				w.WriteHeader(code)
				fmt.Fprint(w, body)
				return
			}
			next.ServeHTTP(w, r)
		}
	}
	upload := func(r *http.Request) bool { return isUpload(r) }
	for name, c := range map[string]struct {
		fault  middleware
		compat bool
		want   []string
		not    string
	}{
		"detail":        {answer(isManifest, http.MethodPut, 400, `{"errors":[{"code":"X","message":"no","detail":"policy 17: images only"}]}`), false, []string{"policy 17: images only", "--compat"}, ""},
		"detail object": {answer(isManifest, http.MethodPut, 400, `{"errors":[{"code":"X","message":"no","detail":{"policy":17}}]}`), true, []string{`{"policy":17}`}, "--compat"},
		"too long":      {answer(upload, http.MethodPut, 413, `<html>`), false, []string{"413", "must allow longer ones"}, ""},
		"read only":     {answer(upload, http.MethodPost, 405, ``), false, []string{"405", "takes no pushes"}, "--compat"},
		"rewritten":     {rewriteManifests, true, []string{"rewrites manifests"}, "--compat"},
	} {
		l := newLab(t, c.fault)
		_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options(), Compat: c.compat})
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: error %q does not say %q", name, err, w)
			}
		}
		if c.not != "" && strings.Contains(err.Error(), c.not) {
			t.Errorf("%s: error %q says %q", name, err, c.not)
		}
	}
}

func TestTagsOfDigests(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 36))
	other := schemas.DigestOf([]byte("other"))
	l := newLab(t, nil)
	for tag, ok := range map[string]bool{"run-" + run.Hex(): true, "run-" + other.Hex(): false, "sha256-" + run.Hex(): false, "sha256-" + other.Hex(): false, "run-1": true, "sha256-abc": true} {
		_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:"+tag), PushOptions{Options: l.options()})
		if (err == nil) != ok {
			t.Errorf("%s: %v", tag, err)
		}
	}
}

// TestWaitsAreTold hears of each wait once, also when several blobs wait at a time.
func TestWaitsAreTold(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", map[string]string{"outputs/result/1": noise(2<<20, 1), "outputs/result/2": noise(2<<20, 2), "outputs/result/3": noise(2<<20, 3)})
	first := once(1)
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isBlob(r) && r.Method == http.MethodHead && first(r.URL.Path) {
			w.Header().Set("Retry-After", "60")
			refuse(w, 429, "TOOMANYREQUESTS", "slow down")
			return
		}
		next.ServeHTTP(w, r)
	})
	var told []string
	o := l.options()
	o.Waiting = func(text string) { told = append(told, text) }
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
	must(t, err)
	if len(told) != 1 || !strings.Contains(told[0], "trying again in 1m0s") || !strings.Contains(told[0], "429") || !strings.Contains(told[0], l.host()) {
		t.Errorf("told %q", told)
	}
	w := waits{tell: func(string) { told = nil }, until: time.Now().Add(-time.Second)}
	if w.say(time.Second, "again"); told != nil {
		t.Error("the wait after it is not told")
	}
}

// TestCounts compares what is said to have been moved with what there was to move.
func TestCounts(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 37))
	first := once(1)
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut && isUpload(r) && first("put") {
			w.WriteHeader(http.StatusServiceUnavailable) // after the body was read
			return
		}
		next.ServeHTTP(w, r)
	})
	var last Progress
	o := l.options()
	o.Progress = func(p Progress) { last = p }
	out, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o, Compat: true})
	must(t, err)
	if out.BytesMoved != out.Bytes || out.BlobsMoved != out.Blobs || last.Done != last.Total || last.Total != out.Bytes {
		t.Errorf("%+v, progress %+v: want all of it once", out, last)
	}
}

// TestBrokenWrappers are damaged archives.
func TestBrokenWrappers(t *testing.T) {
	run := schemas.DigestOf([]byte("run"))
	for name, manifest := range map[string][]byte{"of nothing": wrapperOf(run, 100), "too long": wrapperOf(run, 5<<20, run)} {
		config := wrapperConfig()
		if name == "too long" {
			config = wrapperConfig(run)
		}
		l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			switch {
			case isManifest(r):
				w.Header().Set("Content-Type", mediaManifest)
				_, _ = w.Write(manifest)
			case strings.HasSuffix(r.URL.Path, string(schemas.DigestOf(config))):
				_, _ = w.Write(config)
			default:
				next.ServeHTTP(w, r)
			}
		})
		_, err := Pull(context.Background(), newStore(t), l.ref("a/b:t"), PullOptions{Options: l.options()})
		if !corrupt(err) || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "wrapper") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
