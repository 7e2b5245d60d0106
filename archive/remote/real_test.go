package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/archive"
	"assay/schemas"
)

// realRegistry is Debian's docker-registry on a port of this machine.
type realRegistry struct {
	host string
	dir  string // where it keeps its blobs
}

// startRegistry runs docker-registry for the test; with a user it wants a
// password.
func startRegistry(t testing.TB, user, pass string) realRegistry {
	t.Helper()
	bin, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Skip("docker-registry is not installed: apt-get install docker-registry")
	}
	dir := t.TempDir()
	auth := ""
	if user != "" {
		htpasswd, err := exec.LookPath("htpasswd")
		if err != nil {
			t.Skip("htpasswd is not installed: apt-get install apache2-utils")
		}
		out, err := exec.Command(htpasswd, "-nbB", "-C", "4", user, pass).Output()
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "htpasswd"), bytes.TrimSpace(out), 0o600))
		auth = fmt.Sprintf("auth:\n  htpasswd:\n    realm: lab\n    path: %s\n", filepath.Join(dir, "htpasswd"))
	}
	for range 5 { // the port may be taken between asking and using it
		host := freePort(t)
		config := fmt.Sprintf("version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: %s/data\nhttp:\n  addr: %s\n  secret: lab\n%s", dir, host, auth)
		must(t, os.WriteFile(filepath.Join(dir, "config.yml"), []byte(config), 0o600))
		cmd := exec.Command(bin, "serve", filepath.Join(dir, "config.yml"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OTEL_TRACES_EXPORTER=none"}
		must(t, cmd.Start())
		gone := make(chan error, 1)
		go func() { gone <- cmd.Wait() }()
		if up(t, host, gone) {
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-gone
			})
			return realRegistry{host, filepath.Join(dir, "data")}
		}
	}
	t.Fatal("docker-registry does not start")
	return realRegistry{}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// up waits until the registry answers or ends.
func up(t testing.TB, host string, gone chan error) bool {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		if conn, err := net.DialTimeout("tcp", host, time.Second); err == nil {
			_ = conn.Close()
			return true
		}
		select {
		case <-gone:
			return false
		case <-limit:
			t.Fatal("docker-registry does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (r realRegistry) ref(t testing.TB, rest string) Reference {
	return parseRef(t, Scheme+r.host+"/"+rest)
}

func noLogin() Options {
	return Options{tune: &tuning{chunk: testChunk, whole: testChunk, getenv: func(string) string { return "" }}}
}

func TestRealRegistry(t *testing.T) {
	for _, auth := range []bool{false, true} {
		t.Run(fmt.Sprintf("auth=%v", auth), func(t *testing.T) {
			user, pass := "", ""
			o := noLogin()
			if auth {
				user, pass = "me", password
			}
			reg := startRegistry(t, user, pass)
			if auth {
				o.tune.getenv = login(t, reg.host, user, pass)
			}
			s := newStore(t)
			first := sealRun(t, s, "first", someFiles(bigFile, 1))
			run := sealRun(t, s, "second", someFiles(bigFile, 2), first)
			ctx := context.Background()
			pushed, err := Push(ctx, s.Layout, run, reg.ref(t, "lab/runs:base"), PushOptions{Options: o})
			must(t, err)
			if pushed.BytesMoved != pushed.Bytes {
				t.Errorf("%d bytes sent, want %d", pushed.BytesMoved, pushed.Bytes)
			}
			again, err := Push(ctx, s.Layout, run, reg.ref(t, "lab/runs:base"), PushOptions{Options: o})
			must(t, err)
			if again.BytesMoved != 0 {
				t.Errorf("%d bytes sent again", again.BytesMoved)
			}
			mounted, err := Push(ctx, s.Layout, run, reg.ref(t, "lab/copy:base"), PushOptions{Options: o, MountFrom: []string{"lab/runs"}})
			must(t, err)
			if mounted.BytesMoved != 0 || mounted.BlobsMounted != mounted.Blobs {
				t.Errorf("%+v: want every blob mounted", mounted)
			}
			into := newStore(t)
			pulled, err := Pull(ctx, into, reg.ref(t, "lab/copy:base"), PullOptions{Options: o})
			must(t, err)
			wantValid(t, into, run)
			wantValid(t, into, first)
			if pulled.BytesMoved != pushed.Bytes {
				t.Errorf("%d bytes fetched, want %d", pulled.BytesMoved, pushed.Bytes)
			}
			wrapped, err := Push(ctx, s.Layout, run, reg.ref(t, "lab/compat:base"), PushOptions{Options: o, Compat: true})
			must(t, err)
			got, err := Check(ctx, reg.ref(t, "lab/compat:base"), o)
			if err != nil || got != run || wrapped.Stored == run {
				t.Errorf("wrapped run: %s, %v, want %s", got, err, run)
			}
			if !auth {
				return
			}
			o.tune.getenv = login(t, reg.host, user, "wrong")
			_, err = Push(ctx, s.Layout, run, reg.ref(t, "lab/runs:base"), PushOptions{Options: o})
			if err == nil || !strings.Contains(err.Error(), "UNAUTHORIZED") || !strings.Contains(err.Error(), "auths") {
				t.Errorf("a wrong password: %v", err)
			}
		})
	}
}

// TestRealDamage changes a byte of a blob on the registry's disk.
func TestRealDamage(t *testing.T) {
	reg := startRegistry(t, "", "")
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 3))
	ctx := context.Background()
	_, err := Push(ctx, s.Layout, run, reg.ref(t, "lab/runs:base"), PushOptions{Options: noLogin()})
	must(t, err)
	for _, b := range blobsOf(t, s, run) {
		path := filepath.Join(reg.dir, "docker/registry/v2/blobs/sha256", b.Digest.Hex()[:2], b.Digest.Hex(), "data")
		keep, err := os.ReadFile(path)
		must(t, err)
		flip(t, path)
		into := newStore(t)
		_, err = Pull(ctx, into, reg.ref(t, "lab/runs:base"), PullOptions{Options: noLogin()})
		var corrupt *archive.CorruptError
		if !errors.As(err, &corrupt) || corrupt.Blob != b.Digest {
			t.Errorf("blob %s changed on the registry's disk: error %v", b.Digest, err)
		}
		if into.HasRun(ctx, run) {
			t.Error("the damaged run is in the store")
		}
		must(t, os.WriteFile(path, keep, 0o644))
	}
}

func blobsOf(t testing.TB, s *archive.Store, run schemas.Digest) []archive.BlobRef {
	t.Helper()
	raw, err := s.ManifestBytes(run)
	must(t, err)
	list, err := archive.ManifestBlobs(raw)
	must(t, err)
	return list
}

// TestRealDamageOnPush pushes a run again whose blobs were damaged on the
// registry's disk. This registry keeps what it has: the push must not report
// success where the damage can be seen.
func TestRealDamageOnPush(t *testing.T) {
	reg := startRegistry(t, "", "")
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 3))
	ctx := context.Background()
	push := func(check bool) (Transfer, error) {
		return Push(ctx, s.Layout, run, reg.ref(t, "lab/runs:base"), PushOptions{Options: noLogin(), Check: check})
	}
	out, err := push(true)
	must(t, err)
	if out.BlobsChecked != out.Blobs {
		t.Errorf("%d of %d blobs read back", out.BlobsChecked, out.Blobs)
	}
	list := blobsOf(t, s, run)
	for _, b := range []archive.BlobRef{list[0], list[len(list)-2], list[len(list)-1]} {
		path := reg.blobPath(b.Digest)
		keep, err := os.ReadFile(path)
		must(t, err)
		for name, damage := range map[string]func(){"flipped": func() { flip(t, path) }, "cut": func() { must(t, os.Truncate(path, b.Size-1)) }} {
			damage()
			for _, check := range []bool{true, false} {
				_, err := push(check)
				var bad *archive.CorruptError
				if found := errors.As(err, &bad) && bad.Blob == b.Digest && strings.Contains(err.Error(), "must delete the blob"); found != (check || name == "cut") {
					t.Errorf("%s %s, check %v: error %v", name, b.MediaType, check, err)
				}
			}
			must(t, os.WriteFile(path, keep, 0o644))
		}
	}
	_, err = push(true)
	must(t, err)
	// A damaged manifest is read back always.
	flip(t, reg.blobPath(run))
	if _, err = push(false); !corrupt(err) || !strings.Contains(err.Error(), "keeps a manifest") {
		t.Errorf("a damaged manifest: error %v", err)
	}
}
