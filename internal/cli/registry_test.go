package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/durable"
)

// TestReferencesToNoRun names an image, and what is no registry: every command says
// the same of it.
func TestReferencesToNoRun(t *testing.T) {
	image := `{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","config":{"mediaType":"application/vnd.docker.container.image.v1+json","digest":"sha256:%064d","size":3},"layers":[]}`
	for name, c := range map[string]struct {
		media, body, want string
		code              int
	}{
		"image":  {"application/vnd.docker.distribution.manifest.v2+json", fmt.Sprintf(image, 1), "it is an image, not a run of assay", ExitUsage},
		"portal": {"text/html", "<html>", "does not look like a registry", ExitInfra},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", c.media)
			fmt.Fprint(w, c.body)
		}))
		dir := t.TempDir()
		t.Setenv("DOCKER_CONFIG", dir)
		ref := "oci://" + strings.TrimPrefix(srv.URL, "http://") + "/a/b:t"
		for _, args := range [][]string{{"pull", ref}, {"verify", ref}, {"show", ref}, {"cat", ref, "report.json"}, {"extract", ref, filepath.Join(dir, "out")},
			{"export", ref, "--as", "tar", "--out", filepath.Join(dir, "out.tar")}, {"push", ref, "oci://localhost:1/c/d"}} {
			var out, errs bytes.Buffer
			code := Run(context.Background(), append([]string{"--store", filepath.Join(dir, "store")}, args...), nil, &out, &errs)
			if code != c.code || !strings.Contains(errs.String(), c.want) {
				t.Errorf("%s: %s: exit code %d, want %d: %s", name, args[0], code, c.code, errs.String())
			}
		}
		srv.Close()
	}
}

// TestSweepTempFolders removes what a dead process left, and nothing else.
func TestSweepTempFolders(t *testing.T) {
	dir := t.TempDir()
	self := strings.Split(durable.Self(), ".")
	if len(self) != 5 {
		t.Fatalf("token %v", self)
	}
	self[3] = "999999999" // beyond what a kernel gives
	dead := strings.Join(self, ".")
	for name, stays := range map[string]bool{
		tempPrefix + dead + "-123": false, tempPrefix + durable.Self() + "-123": true, tempPrefix + "123": true, tempPrefix + "x-1": true, "assay-other-" + dead + "-123": true,
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(at, "store"), 0o755); err != nil {
			t.Fatal(err)
		}
		sweepTempFolders(dir)
		if _, err := os.Lstat(at); (err == nil) != stays {
			t.Errorf("%s: %v, want it to stay: %v", name, err, stays)
		}
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(dir, tempPrefix+dead+"-9")); err != nil {
		t.Fatal(err)
	}
	sweepTempFolders(dir)
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error("a link was followed")
	}
}
