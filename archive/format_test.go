package archive

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"assay/schemas"
)

var update = flag.Bool("update", false, "make testdata/v1 anew; only before the first release")

// fixtureRun is the run in testdata/v1. It never changes.
const fixtureRun = schemas.Digest("sha256:5b849515afb933b20a44e8a199b17de60b70d8bfa14088fa94f97225f55c2403")

func fixtureStages() map[string]map[string]string {
	m := smallStages()
	m["replay"]["outputs/requests/text.log"] = strings.Repeat("the same line again\n", 300_000)
	m["gen"]["outputs/workload/"+strings.Repeat("long/", 25)+"näme"] = "deep\n"
	return m
}

// fixture copies testdata/v1, since opening a store makes its empty folders.
func fixture(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "v1")
	if err := os.CopyFS(dir, os.DirFS("testdata/v1")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A store of version 1 is read by every later release.
func TestFixtureV1(t *testing.T) {
	ctx := context.Background()
	if *update {
		if err := os.RemoveAll("testdata/v1"); err != nil {
			t.Fatal(err)
		}
		s, err := Create("testdata/v1")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("set fixtureRun to %s", sealRun(t, s, "fixture-1", "fixture", fixtureStages()))
	}
	s, err := Open(fixture(t))
	if err != nil {
		t.Fatal(err)
	}
	ref, err := s.Resolve(ctx, "fixture")
	if err != nil || ref.Digest != fixtureRun {
		t.Fatalf("tag fixture is %s, %v, want %s", ref.Digest, err, fixtureRun)
	}
	v, err := ref.Verify(ctx)
	wantVerdict(t, v, err, Valid)
	runs, err := s.Runs(ctx)
	if err != nil || len(runs) != 1 || runs[0].ID != "fixture-1" || runs[0].Experiment != "demo/sample" || runs[0].Sequence != 1 {
		t.Errorf("runs %+v, %v", runs, err)
	}
	recs, err := s.RecordsByStage(ctx, "demo/sample", "replay")
	if err != nil || len(recs) != 1 || !recs[0].Sealed {
		t.Errorf("records %+v, %v", recs, err)
	}
	run, err := ref.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	// Today's code gives the same trees for the same content.
	for _, r := range run.Config.Records {
		now, _, err := s.PutTree(ctx, writeFiles(t, fixtureStages()[r.Record.Stage]))
		then, terr := s.Tree(ctx, r.Record.Tree)
		if err := errors.Join(err, terr); err != nil || now.Digest != then.Digest {
			t.Errorf("stage %s is now %s, was %s, %v", r.Record.Stage, now.Digest, then.Digest, err)
		}
	}
}

// recipe is the shell script in FORMAT.md.
func recipe(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"sh", "jq", "sha256sum", "zstd", "tail", "cmp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	b, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "<!-- recipe: a test runs this block -->\n```sh\n")
	script, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatal("FORMAT.md has no recipe")
	}
	path := filepath.Join(t.TempDir(), "check.sh")
	if err := os.WriteFile(path, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The recipe accepts a good run and refuses each of its blobs with a bit flipped.
func TestRecipeByHand(t *testing.T) {
	script := recipe(t)
	dir := fixture(t)
	check := func() (string, error) {
		out, err := exec.Command("sh", script, dir, string(fixtureRun)).CombinedOutput()
		return string(out), err
	}
	if out, err := check(); err != nil || out != "ok\n" {
		t.Fatalf("good run: %q, %v", out, err)
	}
	l, err := OpenLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	run, err := l.Run(context.Background(), fixtureRun)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, d := range run.Manifest.Layers {
		if seen[string(d.MediaType)] {
			continue
		}
		seen[string(d.MediaType)] = true
		path := filepath.Join(dir, blobName(digestOf(d)))
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte(nil), good...)
		bad[len(bad)/2] ^= 4
		if err := os.WriteFile(path, bad, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := check(); err == nil {
			t.Errorf("%s with a bit flipped: %q", d.MediaType, out)
		}
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pack := layersOf(run.Manifest, MediaPack)[0]
	out, err := exec.Command("sh", "-c", "zstd -dcq <\"$0\" | tar -t", filepath.Join(dir, blobName(digestOf(pack)))).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "logs/stage.log\n") {
		t.Errorf("tar lists %q, %v", out, err)
	}
}

// FORMAT.md names every finding of verify and fsck.
func TestFormatNamesFindings(t *testing.T) {
	text, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	id := regexp.MustCompile(`"((?:archive|fsck)\.[a-z-]+)"|topic: "([a-z]+)"|where\{"([a-z]+)"`)
	n := 0
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range id.FindAllSubmatch(b, -1) {
			name := string(m[1])
			if topic := string(m[2]) + string(m[3]); topic != "" {
				name = "archive.contradiction." + topic
			}
			if n++; !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("%s has the finding %s, which FORMAT.md does not name", f, name)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d findings were found", n)
	}
}
