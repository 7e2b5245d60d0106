package cli

import (
	"context"
	"os"
	"strings"
	"testing"

	"assay/archive"
	"assay/schemas"
)

const drawn = `schema = "assay/experiment/v1"
name = "drawn"
[stage.w]
kind = "workload"
models = 1
rate = 20.0
duration = "20s"
`

// TestWhatWasConsumedIsCompared: a report that claims other content of its source run
// is told from one that says what is there.
func TestWhatWasConsumedIsCompared(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("drawn.toml", []byte(drawn), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, said := runAssay(t, "run", "drawn.toml", "--quiet"); code != ExitOK {
		t.Fatalf("exit code %d: %s", code, said)
	}
	store, err := archive.Open(".assay")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := store.Resolve(context.Background(), "latest")
	if err != nil {
		t.Fatal(err)
	}
	run, err := ref.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	report, err := run.Document("report.json")
	if err != nil {
		t.Fatal(err)
	}
	file := schemas.SourceFile{Path: "report.json", Digest: schemas.DigestOf(report)}
	for _, tt := range []struct {
		name, want string
		src        schemas.SourceRun
	}{
		{"as it is", "", schemas.SourceRun{Consumed: []string{"report.json"}, Files: []schemas.SourceFile{file}}},
		{"from before contents were named", "", schemas.SourceRun{Consumed: []string{"report.json"}}},
		{"other content", "has another", schemas.SourceRun{Consumed: []string{"report.json"}, Files: []schemas.SourceFile{{Path: "report.json", Digest: schemas.DigestOf(nil)}}}},
		{"content of another path alone", "names no content of experiment.json", schemas.SourceRun{Consumed: []string{"report.json", "experiment.json"}, Files: []schemas.SourceFile{file}}},
	} {
		if got := consumedDiffer(run, tt.src); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	// A run that stands above itself, and one that is nowhere.
	c := &call{ctx: context.Background()}
	circle := *run
	circle.Config.Sources = []schemas.SourceRun{{Reference: "self", Digest: run.Digest}, {Reference: "gone", Digest: schemas.DigestOf([]byte("gone"))}}
	var r verifiedRun
	if err := c.follow(&r, &circle, []*archive.Layout{store.Layout}, []schemas.Digest{run.Digest}); err != nil {
		t.Fatal(err)
	}
	if len(r.Sources) != 2 || r.Sources[0].Verdict != archive.Invalid || r.Sources[1].Verdict != archive.Unknown || r.whole() {
		t.Errorf("%+v", r.Sources)
	}
}
