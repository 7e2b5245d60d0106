package remote

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const password = "correct-horse-battery-staple"

// login writes a Docker config with a login for host, and returns the
// environment that leads to it.
func login(t testing.TB, host, user, pass string) func(string) string {
	t.Helper()
	dir := t.TempDir()
	writeJSON(t, filepath.Join(dir, "config.json"), map[string]any{"auths": map[string]any{
		host: map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":" + pass))}}})
	return env(map[string]string{"DOCKER_CONFIG": dir})
}

func env(m map[string]string) func(string) string { return func(k string) string { return m[k] } }

func writeJSON(t testing.TB, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, b, 0o600))
}

func flip(t testing.TB, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	b[len(b)/2] ^= 1
	must(t, os.Chmod(path, 0o644))
	must(t, os.WriteFile(path, b, 0o644))
}

func (l *lab) host() string { return strings.TrimPrefix(l.URL, "http://") }

// TestTokensRunOut is a registry whose tokens are good for a few requests only,
// and that says so in the middle of an upload.
func TestTokensRunOut(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 9))
	var mu sync.Mutex
	left, issued := 0, 0
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/token" {
			if u, p, _ := r.BasicAuth(); u != "me" || p != password || !strings.Contains(r.URL.Query().Get("scope"), "repository:a/b:p") {
				refuse(w, 401, "UNAUTHORIZED", "who?")
				return
			}
			issued++
			left = 9
			fmt.Fprintf(w, `{"token":"token-%d-abcdefgh"}`, issued)
			return
		}
		if r.Header.Get("Authorization") != fmt.Sprintf("Bearer token-%d-abcdefgh", issued) || left == 0 {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="lab",scope="repository:a/b:pull,push"`, r.Host))
			refuse(w, 401, "UNAUTHORIZED", "token expired")
			return
		}
		left--
		next.ServeHTTP(w, r)
	})
	o := l.options()
	o.tune.getenv = login(t, l.host(), "me", password)
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
	must(t, err)
	into := newStore(t)
	_, err = Pull(context.Background(), into, l.ref("a/b:t"), PullOptions{Options: o})
	must(t, err)
	wantValid(t, into, run)
	if issued < 4 {
		t.Errorf("%d tokens issued: none ran out", issued)
	}
}

// basicAuth is a registry that wants a password.
func basicAuth(user, pass string) middleware {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != pass {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			refuse(w, 401, "UNAUTHORIZED", "the header was "+r.Header.Get("Authorization")+" and the password "+p)
			return
		}
		next.ServeHTTP(w, r)
	}
}

// TestSecretsStayOut is a registry that repeats what it was sent.
func TestSecretsStayOut(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 10))
	l := newLab(t, basicAuth("me", "another"))
	o := l.options()
	o.tune.getenv = login(t, l.host(), "me", password)
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
	if err == nil {
		t.Fatal("no error")
	}
	for _, secret := range []string{password, base64.StdEncoding.EncodeToString([]byte("me:" + password))} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("error %q holds the secret %s", err, secret)
		}
	}
	for _, want := range []string{"401", "UNAUTHORIZED", "config.json (auths)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

// TestRedirectsCarryNothing serves blobs from another host, which must not see
// the password.
func TestRedirectsCarryNothing(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 11))
	var l *lab
	var leaked []string
	var mu sync.Mutex
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "" {
			leaked = append(leaked, r.URL.Path)
		}
		l.inner.ServeHTTP(w, r)
	}))
	defer other.Close()
	check := basicAuth("me", password)
	l = newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		check(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isBlob(r) && r.Method == http.MethodGet {
				http.Redirect(w, r, other.URL+r.URL.Path+"?sig=0123456789", http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(rewriter{w, func(h http.Header) {
				if at := h.Get("Location"); at != "" && r.Method == http.MethodPost {
					h.Set("Location", other.URL+at) // uploads too
				}
			}}, r)
		}))
	})
	o := l.options()
	o.tune.getenv = login(t, l.host(), "me", password)
	_, err := Push(context.Background(), s.Layout, run, l.ref("a/b:t"), PushOptions{Options: o})
	must(t, err)
	into := newStore(t)
	_, err = Pull(context.Background(), into, l.ref("a/b:t"), PullOptions{Options: o})
	must(t, err)
	wantValid(t, into, run)
	if len(leaked) > 0 {
		t.Errorf("the password went to another host: %v", leaked)
	}
}

func TestPlainHTTP(t *testing.T) {
	l := newLab(t, nil)
	at := func(host string) (Reference, Options) {
		o := l.options()
		o.tune.transport = &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, l.host())
		}}
		return parseRef(t, Scheme+host+"/a/b:t"), o
	}
	for _, host := range []string{"registry.example:5000", "192.168.7.7:5000", "registry.local:5000", "localhost.example:5000"} {
		ref, o := at(host)
		before := l.count("")
		_, err := Check(context.Background(), ref, o)
		if err == nil || !strings.Contains(err.Error(), "--plain-http") {
			t.Errorf("%s: error %v, want one that names --plain-http", host, err)
		}
		if l.count("") != before {
			t.Errorf("%s was spoken to without TLS", host)
		}
		o.PlainHTTP = true
		if _, err := Check(context.Background(), ref, o); status(err) != 404 {
			t.Errorf("%s with --plain-http: error %v, want a 404", host, err)
		}
	}
	for _, host := range []string{"localhost:5000", "127.0.0.1:5000", "[::1]:5000"} {
		ref, o := at(host)
		if _, err := Check(context.Background(), ref, o); status(err) != 404 {
			t.Errorf("%s: error %v, want a 404", host, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	helpers := t.TempDir()
	script := "#!/bin/sh\n[ \"$1\" = get ] || exit 1\nread server\nprintf '{\"ServerURL\":\"%s\",\"Username\":\"helper\",\"Secret\":\"from-%s\"}' \"$server\" \"$server\"\n"
	must(t, os.WriteFile(filepath.Join(helpers, "docker-credential-lab"), []byte(script), 0o755))
	must(t, os.WriteFile(filepath.Join(helpers, "docker-credential-broken"), []byte("#!/bin/sh\necho no keyring; exit 1\n"), 0o755))
	t.Setenv("PATH", helpers+":"+os.Getenv("PATH"))
	auth := func(user string) map[string]string {
		return map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user + ":pw"))}
	}
	auths := func(m map[string]string) map[string]any {
		out := map[string]any{}
		for k, user := range m {
			out[k] = auth(user)
		}
		return map[string]any{"auths": out}
	}
	docker, home := "docker/config.json", "home/.docker/config.json"
	runtime, podman := "run/containers/auth.json", "home/.config/containers/auth.json"
	for name, c := range map[string]struct {
		files map[string]any
		env   []string // of DOCKER_CONFIG, HOME, XDG_RUNTIME_DIR, REGISTRY_AUTH_FILE
		user  string
		from  string
		err   string
	}{
		"none":                       {nil, []string{"HOME"}, "", "", ""},
		"auths":                      {map[string]any{home: auths(map[string]string{"reg.example": "a"})}, []string{"HOME"}, "a", "config.json (auths)", ""},
		"DOCKER_CONFIG before HOME":  {map[string]any{home: auths(map[string]string{"reg.example": "a"}), docker: auths(map[string]string{"reg.example": "b"})}, []string{"HOME", "DOCKER_CONFIG"}, "b", "docker/config.json", ""},
		"Podman beside Docker":       {map[string]any{home: auths(map[string]string{"other.example": "a"}), podman: auths(map[string]string{"reg.example": "p"})}, []string{"HOME"}, "p", "auth.json", ""},
		"runtime folder":             {map[string]any{runtime: auths(map[string]string{"reg.example": "r"}), podman: auths(map[string]string{"reg.example": "p"})}, []string{"HOME", "XDG_RUNTIME_DIR"}, "r", "run/containers", ""},
		"REGISTRY_AUTH_FILE first":   {map[string]any{docker: auths(map[string]string{"reg.example": "b"}), "named.json": auths(map[string]string{"reg.example": "n"})}, []string{"DOCKER_CONFIG", "REGISTRY_AUTH_FILE"}, "n", "named.json", ""},
		"REGISTRY_AUTH_FILE missing": {nil, []string{"REGISTRY_AUTH_FILE"}, "", "", "named.json"},
		"part of a registry":         {map[string]any{podman: auths(map[string]string{"reg.example": "p", "reg.example/team": "t", "reg.example/te": "x"})}, []string{"HOME"}, "t", "auth.json", ""},
		"credHelpers":                {map[string]any{docker: map[string]any{"credHelpers": map[string]string{"reg.example": "lab"}, "auths": map[string]any{"reg.example": auth("a")}}}, []string{"DOCKER_CONFIG"}, "helper", "credHelpers: lab", ""},
		"credsStore":                 {map[string]any{docker: map[string]any{"credsStore": "lab"}}, []string{"DOCKER_CONFIG"}, "helper", "credsStore: lab", ""},
		"broken helper":              {map[string]any{docker: map[string]any{"credHelpers": map[string]string{"reg.example": "broken"}}}, []string{"DOCKER_CONFIG"}, "", "", "credHelpers: broken"},
		"no JSON":                    {map[string]any{docker: "secret-text"}, []string{"DOCKER_CONFIG"}, "", "", "log in again"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, v := range c.files {
				writeJSON(t, filepath.Join(dir, path), v)
			}
			where := map[string]string{"DOCKER_CONFIG": "docker", "HOME": "home", "XDG_RUNTIME_DIR": "run", "REGISTRY_AUTH_FILE": "named.json"}
			vars := map[string]string{}
			for _, k := range c.env {
				vars[k] = filepath.Join(dir, where[k])
			}
			got, err := findCredential(context.Background(), parseRef(t, "oci://reg.example/team/runs:t").repo, env(vars))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret-text") {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			must(t, err)
			a, err := got.auth.Authorization()
			must(t, err)
			if a.Username != c.user || !strings.Contains(got.source, c.from) || (c.from == "") != (got.source == "") {
				t.Errorf("user %q from %q, want %q from %q", a.Username, got.source, c.user, c.from)
			}
		})
	}
}
