package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/archive"
	"assay/schemas"
)

// flushed sends what was written at once.
func flushed(w http.ResponseWriter, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

// hang waits until the client gives up. A server that has not read a body cannot
// see that, so it has an end.
func hang(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(2 * time.Second):
	}
}

// endless writes until the client gives up.
func endless(w http.ResponseWriter, _ *http.Request) {
	for flushed(w, bytes.Repeat([]byte(" "), 32<<10)) == nil {
	}
}

// drip writes a byte now and then.
func drip(w http.ResponseWriter, _ *http.Request) {
	for flushed(w, []byte(" ")) == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

func begun(then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mediaManifest)
		_ = flushed(w, []byte("{"))
		then(w, r)
	}
}

// TestHangingRegistries are registries whose answers never come, or never end.
// Each is given up in bounded time, with an error that says so.
func TestHangingRegistries(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(2*bigFile, 12))
	blobs := blobsOf(t, s, run)
	last := blobs[len(blobs)-1]
	gets := func(what func(*http.Request) bool) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == http.MethodGet && what(r) }
	}
	theBlob := gets(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, string(last.Digest)) })
	hello := gets(func(r *http.Request) bool { return r.URL.Path == "/v2/" })
	for name, c := range map[string]struct {
		what func(*http.Request) bool
		does http.HandlerFunc
		push bool
		want string // in the error; "" for none
	}{
		"no answer to the handshake":  {hello, hang, false, "hangs"},
		"an endless handshake":        {hello, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(200); endless(w, r) }, false, ""},
		"no answer for a manifest":    {gets(isManifest), hang, false, "hangs"},
		"a manifest that stops":       {gets(isManifest), begun(hang), false, "hangs"},
		"an endless manifest":         {gets(isManifest), begun(endless), false, "limit of 4194304"},
		"a manifest in drops":         {gets(isManifest), begun(drip), false, "hangs"},
		"a blob that stops":           {theBlob, begun(hang), false, "hangs"},
		"a blob in drops":             {theBlob, begun(drip), false, "broke off"},
		"an endless blob":             {theBlob, endless, false, string(last.Digest)},
		"an endless error":            {theBlob, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403); endless(w, r) }, false, "403"},
		"an error in drops":           {theBlob, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(403); drip(w, r) }, false, "403"},
		"no answer to HEAD":           {func(r *http.Request) bool { return isBlob(r) && r.Method == http.MethodHead }, hang, true, "hangs"},
		"an upload that is not taken": {func(r *http.Request) bool { return isUpload(r) && r.ContentLength > 1<<18 }, hang, true, "hangs"},
		"redirects that go in a circle": {theBlob, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
		}, false, "more than 5 redirects"},
		"an endless storm of 500": {isBlob, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, true, "after 6 attempts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			armed := c.push
			l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				mu.Lock()
				hit := armed && c.what(r)
				mu.Unlock()
				if hit {
					c.does(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
			o := l.options()
			o.tune.stall = 100 * time.Millisecond
			// A body must be longer than what the kernel takes without the other side.
			o.tune.chunk, o.tune.whole = 4*bigFile, 4*bigFile
			ctx := context.Background()
			_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
			began := time.Now()
			if !c.push {
				must(t, err)
				mu.Lock()
				armed = true
				mu.Unlock()
				_, err = Pull(ctx, newStore(t), l.ref("a/b:t"), PullOptions{Options: o})
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// TestStallsAreSurvived hangs each blob once in its middle: the rest is asked for.
func TestStallsAreSurvived(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 13))
	first := once(1)
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isBlob(r) && r.Method == http.MethodGet && first(r.URL.Path) {
			next.ServeHTTP(&cutter{ResponseWriter: w, left: 100}, r)
			hang(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
	ctx := context.Background()
	o := l.options()
	o.tune.stall = 100 * time.Millisecond
	_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
	must(t, err)
	into := newStore(t)
	out, err := Pull(ctx, into, l.ref("a/b:t"), PullOptions{Options: o})
	must(t, err)
	if out.BytesMoved != out.Bytes {
		t.Errorf("%d bytes came for %d", out.BytesMoved, out.Bytes)
	}
	wantValid(t, into, run)
}

// TestLies are answers whose headers or documents are not true.
func TestLies(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(5000, 14))
	other := string(schemas.DigestOf([]byte("other")))
	raw, err := s.ManifestBytes(run)
	must(t, err)
	var m map[string]any
	must(t, json.Unmarshal(raw, &m))
	layers := m["layers"].([]any)
	for i := range 20000 {
		layers = append(layers, map[string]any{"mediaType": archive.MediaPart, "digest": schemas.DigestOf([]byte(fmt.Sprint(i))), "size": 1})
	}
	m["layers"] = layers
	many, err := json.Marshal(m)
	must(t, err)
	digest := func(what func(*http.Request) bool, method string) middleware {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if what(r) && r.Method == method {
				w = rewriter{w, func(h http.Header) { h.Set("Docker-Content-Digest", other) }}
			}
			next.ServeHTTP(w, r)
		}
	}
	for name, c := range map[string]struct {
		fault middleware
		push  bool
		want  string
	}{
		"digest of a manifest":        {digest(isManifest, http.MethodGet), false, "hash to " + string(run)},
		"digest of a manifest pushed": {digest(isManifest, http.MethodPut), true, "stored it as " + other},
		"digest of a blob pushed":     {digest(isUpload, http.MethodPut), true, "stored it as"},
		"20,000 layers": {func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isManifest(r) {
				w.Header().Set("Content-Type", mediaManifest)
				_, _ = w.Write(many)
				return
			}
			next.ServeHTTP(w, r)
		}, false, "limit of 2000"},
	} {
		t.Run(name, func(t *testing.T) {
			armed := c.push
			l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if armed {
					c.fault(w, r, next)
					return
				}
				next.ServeHTTP(w, r)
			})
			ctx := context.Background()
			_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
			if !c.push {
				must(t, err)
				armed = true
				_, err = Pull(ctx, newStore(t), l.ref("a/b:t"), PullOptions{Options: l.options()})
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestRedirectToPlainHTTP is a registry with TLS that leads away from it.
func TestRedirectToPlainHTTP(t *testing.T) {
	asked := 0
	clear := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer clear.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isManifest(r) {
			http.Redirect(w, r, clear.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}
	}))
	defer secure.Close()
	o := noLogin()
	o.tune.transport = secure.Client().Transport
	_, err := Check(context.Background(), parseRef(t, Scheme+strings.TrimPrefix(secure.URL, "https://")+"/a/b:t"), o)
	if err == nil || !strings.Contains(err.Error(), "--plain-http") || asked > 0 {
		t.Errorf("error %v, asked %d times, want a refusal", err, asked)
	}
}

// tokenLab is a registry with a token service; the service answers with answer.
func tokenLab(t *testing.T, realm func(l *lab) string, answer func(w http.ResponseWriter, r *http.Request)) *lab {
	var l *lab
	l = newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/token" {
			answer(w, r)
			return
		}
		if r.Header.Get("Authorization") != "Bearer opaque-token-1234" {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s",service="lab"`, realm(l)))
			refuse(w, 401, "UNAUTHORIZED", "no token")
			return
		}
		next.ServeHTTP(w, r)
	})
	return l
}

func own(l *lab) string { return l.URL + "/token" }

// TestIdentityToken logs in with a refresh token, as Docker keeps it for some
// registries.
func TestIdentityToken(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 15))
	const identity = "identity-token-abcdef"
	grants := 0
	l := tokenLab(t, own, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.FormValue("grant_type") == "refresh_token" && r.FormValue("refresh_token") == identity {
			grants++
			fmt.Fprint(w, `{"access_token":"opaque-token-1234"}`)
			return
		}
		refuse(w, 401, "UNAUTHORIZED", "token "+r.FormValue("refresh_token")+" is not known")
	})
	dir := t.TempDir()
	for token, ok := range map[string]bool{identity: true, "wrong-identity-token": false} {
		writeJSON(t, filepath.Join(dir, "config.json"), map[string]any{"auths": map[string]any{l.host(): map[string]string{"identitytoken": token}}})
		o := l.options()
		o.tune.getenv = env(map[string]string{"DOCKER_CONFIG": dir})
		_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
		if (err == nil) != ok {
			t.Errorf("identity token %s: error %v", token, err)
		}
		if err != nil && (strings.Contains(err.Error(), token) || !strings.Contains(err.Error(), "config.json (auths)")) {
			t.Errorf("error %v repeats the token, or does not say where it is from", err)
		}
	}
	if grants == 0 {
		t.Error("the identity token was not used")
	}
}

// TestTokensStayOut are services that repeat tokens, or send other ones.
func TestTokensStayOut(t *testing.T) {
	l := tokenLab(t, own, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token":"opaque-token-1234"}`) })
	inner := l.inner
	l.inner = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isManifest(r) {
			refuse(w, 403, "DENIED", "token opaque-token-1234 may not read")
			return
		}
		inner.ServeHTTP(w, r)
	})
	_, err := Check(context.Background(), l.ref("a/b:t"), l.options())
	if err == nil || strings.Contains(err.Error(), "opaque-token") || !strings.Contains(err.Error(), "may not read") {
		t.Errorf("error %v", err)
	}
	l = tokenLab(t, own, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"refresh_token":"another-secret-5678"}`) })
	_, err = Check(context.Background(), l.ref("a/b:t"), l.options())
	if err == nil || strings.Contains(err.Error(), "another-secret") || !strings.Contains(err.Error(), "without a token") {
		t.Errorf("error %v", err)
	}
}

// TestTokenServiceElsewhere names another host for logins: over TLS or on this
// machine it is asked, as the protocol wants; in clear nothing is sent to it.
func TestTokenServiceElsewhere(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 16))
	asked := ""
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Get("Authorization")
		fmt.Fprint(w, `{"token":"opaque-token-1234"}`)
	}))
	defer elsewhere.Close()
	l := tokenLab(t, func(*lab) string { return strings.Replace(elsewhere.URL, "127.0.0.1", "localhost", 1) + "/token" }, nil)
	o := l.options()
	o.tune.getenv = login(t, l.host(), "me", password)
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
	must(t, err)
	if asked == "" {
		t.Error("the token service was not asked with the login")
	}
	for realm, want := range map[string]string{"http://198.51.100.7/token": "--plain-http", "https://169.254.169.254/token": "link-local"} {
		l = tokenLab(t, func(*lab) string { return realm }, nil)
		o = l.options()
		o.tune.getenv = login(t, l.host(), "me", password)
		_, err = Check(context.Background(), l.ref("a/b:t"), o)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), password) {
			t.Errorf("%s: error %v, want one with %q", realm, err, want)
		}
	}
}

// TestHostileLists are lists of attachments that do not end, or are none.
func TestHostileLists(t *testing.T) {
	subject := schemas.DigestOf([]byte("run"))
	api := func(link func(r *http.Request) string, entries int) middleware {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			x := index{SchemaVersion: 2, MediaType: mediaIndex}
			for i := range entries {
				x.Manifests = append(x.Manifests, descriptor{Digest: schemas.DigestOf([]byte(r.URL.RawQuery + fmt.Sprint(i))), ArtifactType: "a/b"})
			}
			w.Header().Set("Content-Type", mediaIndex)
			w.Header().Set("Link", link(r))
			_ = json.NewEncoder(w).Encode(x)
		}
	}
	tag := func(media, body string) middleware {
		return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			if !isManifest(r) {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", media)
			fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]struct {
		fault middleware
		want  string
	}{
		"pages in a circle":        {api(func(r *http.Request) string { return "<" + r.URL.Path + `>; rel="next"` }, 1), "more than 64 pages"},
		"too many attachments":     {api(func(r *http.Request) string { return "<" + r.URL.Path + `?n=1>; rel="next"` }, 3000), "more than 4096"},
		"a next page elsewhere":    {api(func(*http.Request) string { return `<https://elsewhere.example/x>; rel="next"` }, 1), ""},
		"a tag that is no index":   {tag(mediaManifest, `{"schemaVersion":2}`), "not an image index"},
		"a tag with rubbish":       {tag(mediaIndex, `<html>`), "does not look like a registry"},
		"a tag of another version": {tag(mediaIndex, `{"schemaVersion":1}`), "schemaVersion 1"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.URL.Path == "/v2/" {
					next.ServeHTTP(w, r)
					return
				}
				c.fault(w, r, next)
			})
			_, err := Attachments(context.Background(), l.ref("a/b"), subject, "a/b", l.options())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestRetryAfterNonsense is waited out like no Retry-After at all.
func TestRetryAfterNonsense(t *testing.T) {
	for _, text := range []string{"soon", "-7", "1e9", "99999999999999999999", "Mon, 99 Jan 2025 00:00:00 GMT"} {
		l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if isManifest(r) {
				w.Header().Set("Retry-After", text)
				refuse(w, 429, "TOOMANYREQUESTS", "slow down")
				return
			}
			next.ServeHTTP(w, r)
		})
		_, err := Check(context.Background(), l.ref("a/b:t"), l.options())
		var e *Error
		if !errors.As(err, &e) || e.Status != 429 || !strings.Contains(err.Error(), "after 6 attempts") {
			t.Errorf("%q: error %v", text, err)
		}
		for _, d := range l.sleeps {
			if d > longestPause {
				t.Errorf("%q: waited %s", text, d)
			}
		}
	}
}
