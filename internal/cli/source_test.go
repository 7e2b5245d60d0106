package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/preflight/source/sourcetest"
)

// TestSpoiltSourceRuns names spoilt validated runs, one way at a time, as the source of
// the benchmark: each is refused with exit code 3, the file and what to do.
func TestSpoiltSourceRuns(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	whole := filepath.Join(t.TempDir(), "whole")
	if err := sourcetest.Build(whole); err != nil {
		t.Fatal(err)
	}
	try := func(dir string) (int, string) {
		return runAssay(t, "run", "aegaeon/three-model-foundry", "--preflight-only", "--source-run", dir)
	}
	if code, said := try(whole); code != ExitOK {
		t.Fatalf("the intact one: exit code %d: %s", code, said)
	}
	n := 0
	for _, c := range sourcetest.Corruptions() {
		dir := filepath.Join(t.TempDir(), "run")
		if err := sourcetest.Copy(whole, dir); err != nil {
			t.Fatal(err)
		}
		if err := c.Spoil(dir); err != nil {
			t.Fatal(err)
		}
		code, said := try(dir)
		if code != ExitRefused || !strings.Contains(said, "["+c.ID+"]") || !strings.Contains(said, c.File) || !strings.Contains(said, "do: ") {
			t.Errorf("%s: exit code %d, want %d with %s of %s: %s", c.Name, code, ExitRefused, c.ID, c.File, said)
		}
		n++
	}
	if n < 40 {
		t.Errorf("%d ways of spoiling a run", n)
	}
	if code, said := try(whole); code != ExitOK {
		t.Errorf("the intact one afterwards: exit code %d: %s", code, said)
	}
	if _, err := os.Stat(".assay"); err == nil {
		t.Error("preflight left a store behind")
	}
}

// TestSpoiltArchives spoils archives and makes report and inventory say so: what the
// files of an archive say of each other refuses the run still.
func TestSpoiltArchives(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Chdir(t.TempDir())
	dir := filepath.Join(t.TempDir(), "run")
	if err := sourcetest.Build(dir); err != nil {
		t.Fatal(err)
	}
	const file = "graph_1_FULL_t2_r2_UX_pcN.cugraph"
	path := filepath.Join(dir, "archive", "Qwen%2FQwen3-4B", "rank_0", file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sourcetest.Reseal(dir); err != nil {
		t.Fatal(err)
	}
	code, said := runAssay(t, "run", "aegaeon/three-model-foundry", "--preflight-only", "--source-run", dir)
	if code != ExitRefused || !strings.Contains(said, "[foundry.cugraph]") || !strings.Contains(said, file) {
		t.Errorf("exit code %d: %s", code, said)
	}
}
