package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func helper(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestHelpers(t *testing.T) {
	helper(t, "lab", `read server; [ "$1" = get ] && printf '{"ServerURL":"%s","Username":"me","Secret":"s-%s"}' "$server" "$server"`)
	helper(t, "token", `echo '{"Username":"<token>","Secret":"identity"}'`)
	helper(t, "none", `echo credentials not found in native keychain; exit 1`)
	helper(t, "leaks", `echo "my secret is hunter2hunter2"; echo "also hunter2hunter2" >&2; exit 3`)
	helper(t, "rubbish", `echo hunter2hunter2`)
	helper(t, "endless", `while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done`)
	ctx := context.Background()
	got, err := askHelper(ctx, "lab", "reg.example", helperTime)
	if err != nil || got.Username != "me" || got.Password != "s-reg.example" {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = askHelper(ctx, "token", "reg.example", helperTime)
	if err != nil || got.IdentityToken != "identity" || got.Username != "" {
		t.Errorf("%+v, %v: want an identity token", got, err)
	}
	got, err = askHelper(ctx, "none", "reg.example", helperTime)
	if err != nil || got.Username != "" || got.Password != "" {
		t.Errorf("%+v, %v: want no login", got, err)
	}
	for name, want := range map[string]string{"leaks": "exit status 3", "rubbish": "no login", "endless": "docker-credential-endless", "missing": "not in PATH"} {
		_, err := askHelper(ctx, name, "reg.example", helperTime)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one with %q and without what it wrote", name, err, want)
		}
	}
}

// TestHangingHelper is a helper that never answers, with a process of its own that
// keeps its output open: both end, after the limit or with the context.
func TestHangingHelper(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	helper(t, "hangs", `sleep 600 & echo $! >`+pids+`; wait`)
	stop := errors.New("a signal")
	for name, c := range map[string]struct {
		limit time.Duration
		stop  bool
		want  string
	}{"limit": {300 * time.Millisecond, false, "did not answer within"}, "context": {helperTime, true, "a signal"}} {
		ctx, cancel := context.WithCancelCause(context.Background())
		if c.stop {
			time.AfterFunc(300*time.Millisecond, func() { cancel(stop) })
		}
		began := time.Now()
		_, err := askHelper(ctx, "hangs", "reg.example", c.limit)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, stop) != c.stop {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
		cancel(nil)
		b, err := os.ReadFile(pids)
		must(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		must(t, err)
		gone := false
		for limit := time.Now().Add(10 * time.Second); !gone && time.Now().Before(limit); time.Sleep(5 * time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			gone = err != nil || strings.Contains(string(stat), ") Z ")
		}
		if !gone {
			t.Errorf("%s: what the helper started goes on", name)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// TestCredentialFilesThatAreNone do not make anything wait.
func TestCredentialFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	must(t, syscall.Mkfifo(path, 0o600))
	for name, at := range map[string]string{"a pipe": dir, "a device": t.TempDir()} {
		if name == "a device" {
			must(t, os.Symlink("/dev/zero", filepath.Join(at, "config.json")))
		}
		_, err := findCredential(context.Background(), parseRef(t, "oci://reg.example/a/b:t").repo, env(map[string]string{"DOCKER_CONFIG": at}))
		if err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestRenewedLogin names the command that renews the login that was refused.
func TestRenewedLogin(t *testing.T) {
	l := newLab(t, basicAuth("me", "another"))
	o := l.options()
	o.tune.getenv = login(t, l.host(), "me", password)
	_, err := Check(context.Background(), l.ref("a/b:t"), o)
	if err == nil || !strings.Contains(err.Error(), "renew it with `docker login "+l.host()+"`") {
		t.Errorf("error %v", err)
	}
	dir := t.TempDir()
	writeJSON(t, filepath.Join(dir, "containers/auth.json"), map[string]any{"auths": map[string]any{l.host(): map[string]string{"auth": "bWU6eA=="}}})
	o.tune.getenv = env(map[string]string{"XDG_CONFIG_HOME": dir})
	_, err = Check(context.Background(), l.ref("a/b:t"), o)
	if err == nil || !strings.Contains(err.Error(), "`podman login "+l.host()+"`") {
		t.Errorf("error %v", err)
	}
}
