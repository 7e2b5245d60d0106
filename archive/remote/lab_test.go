package remote

import (
	"context"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"assay/archive"
	"assay/schemas"
)

var sampleTime = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

func newStore(t testing.TB) *archive.Store {
	t.Helper()
	s, err := archive.Create(filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func noise(n int, seed byte) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return string(b)
}

// someFiles gives a run a small pack and a blob of its own of size bytes.
func someFiles(size int, seed byte) map[string]string {
	return map[string]string{"outputs/result/r.csv": "a,b\n1,2\n", "outputs/result/big.bin": noise(size, seed), "logs/stage.log": "ok\n"}
}

const bigFile = 4<<20 + 100 // a blob of its own, sent in several pieces of testChunk

// sealRun makes a run of one stage with these files in the store.
func sealRun(t testing.TB, s *archive.Store, id string, files map[string]string, sources ...schemas.Digest) schemas.Digest {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		must(t, os.WriteFile(p, []byte(content), 0o644))
	}
	return sealDir(t, s, id, dir, sources...)
}

func sealDir(t testing.TB, s *archive.Store, id, dir string, sources ...schemas.Digest) schemas.Digest {
	t.Helper()
	ctx := context.Background()
	tree, blob, err := s.PutTree(ctx, dir)
	must(t, err)
	key, preimage, err := schemas.KeyOf(schemas.Preimage{Schema: schemas.KeyV1, Kind: "make"})
	must(t, err)
	rec := schemas.StageRecord{Schema: schemas.StageRecordV1, Node: "make@t001", Stage: "make", Kind: "command", KindVersion: 1, Experiment: "demo/sample", Run: id,
		Trial: "t001", Attempt: 1, DefinitionKey: key, Key: key, Pure: true, Status: schemas.StagePassed, StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Second),
		DurationMs: 1000, Inputs: []schemas.Input{}, Outputs: []schemas.Output{}, Tree: blob}
	sub := schemas.SubTree(tree.Entries, "outputs/result")
	d, err := schemas.TreeDigest(sub)
	must(t, err)
	n, size := schemas.SumEntries(sub)
	rec.Outputs = append(rec.Outputs, schemas.Output{Name: "result", Digest: d, Path: "outputs/result", Bytes: size, Files: n})
	rd, err := s.PutRecord(ctx, rec, preimage)
	must(t, err)
	exp := []byte(`{"name":"demo/sample","schema":"assay/experiment/v1","stage":{},"trials":{"order":"sequential","repeat":1,"seed":0}}`)
	run := schemas.Run{Schema: schemas.RunV1, ID: id, Experiment: "demo/sample", Status: schemas.RunPassed, StartedAt: sampleTime, EndedAt: sampleTime.Add(time.Minute),
		Services: []schemas.ServiceRecord{}, Records: []schemas.RunRecord{{Record: rec, Digest: rd, Node: rec.Node, Path: "stages/make/t001"}},
		Sources: []schemas.SourceRun{}, Preimages: []schemas.Digest{key.Preimage()},
		Plan: schemas.Plan{Schema: schemas.PlanV1, Experiment: "demo/sample", Digest: schemas.DigestOf(exp), Trials: []schemas.Trial{}, Nodes: []schemas.Node{}, Services: []schemas.PlanUnit{}, Stages: []schemas.PlanStage{}}}
	for _, s := range sources {
		run.Sources = append(run.Sources, schemas.SourceRun{Reference: "earlier", Digest: s, Consumed: []string{"report.json"}})
	}
	out, err := s.Seal(ctx, schemas.SealRequest{Run: run, Experiment: exp, Source: []byte("# " + id + "\n"), Report: func(f schemas.FileSummary) (schemas.Report, error) {
		return schemas.Report{Schema: schemas.ReportV1, RunID: id, Status: run.Status, Passed: true, StartedAt: run.StartedAt, EndedAt: run.EndedAt,
			Experiment: schemas.ReportExperiment{Name: run.Experiment, Digest: run.Plan.Digest, Params: map[string]any{}}, Stages: []schemas.ReportStage{}, Trials: []schemas.Trial{},
			Results: []schemas.StageResult{}, Findings: []schemas.Finding{}, Conditions: []schemas.Condition{}, Sources: run.Sources, Claims: []schemas.ClaimResult{},
			Environment: schemas.Environment{Accelerators: []schemas.Accelerator{}, CommandLine: []string{"assay", "run"}}, Files: f}, nil
	}})
	must(t, err)
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lab is a registry in this process with something between it and the client.
type lab struct {
	*httptest.Server
	t     testing.TB
	inner http.Handler

	mu     sync.Mutex
	seen   []string        // "METHOD /path?query"
	sent   int64           // bytes of request bodies that came through
	sleeps []time.Duration // that the client would have waited
}

// middleware may answer itself, or pass on with next.
type middleware func(w http.ResponseWriter, r *http.Request, next http.Handler)

func newLab(t testing.TB, m middleware, opts ...registry.Option) *lab {
	t.Helper()
	l := &lab{t: t, inner: registry.New(append([]registry.Option{registry.Logger(log.New(io.Discard, "", 0))}, opts...)...)}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		l.seen = append(l.seen, r.Method+" "+r.URL.RequestURI())
		l.mu.Unlock()
		r.Body = countBody{r.Body, l}
		if m == nil {
			l.inner.ServeHTTP(w, r)
			return
		}
		m(w, r, l.inner)
	}))
	t.Cleanup(l.Close)
	return l
}

type countBody struct {
	io.ReadCloser
	l *lab
}

func (c countBody) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.sent += int64(n)
	return n, err
}

func (l *lab) count(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.seen {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (l *lab) ref(rest string) Reference {
	l.t.Helper()
	return parseRef(l.t, Scheme+strings.TrimPrefix(l.URL, "http://")+"/"+rest)
}

func parseRef(t testing.TB, s string) Reference {
	t.Helper()
	r, err := Parse(s)
	must(t, err)
	return r
}

const testChunk = 1 << 20

// options do not wait, have no credentials, and send small pieces.
func (l *lab) options() Options {
	return Options{tune: &tuning{chunk: testChunk, whole: testChunk, getenv: func(string) string { return "" },
		sleep: func(ctx context.Context, d time.Duration) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.sleeps = append(l.sleeps, d)
			return ctx.Err()
		}}}
}

func wantValid(t testing.TB, s *archive.Store, run schemas.Digest) {
	t.Helper()
	v, err := s.Verify(context.Background(), run)
	must(t, err)
	if v.Verdict != archive.Valid {
		t.Fatalf("verdict %s: %+v", v.Verdict, v.Findings)
	}
}

// once is true the first n times for each key.
func once(n int) func(key string) bool {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(key string) bool {
		mu.Lock()
		defer mu.Unlock()
		seen[key]++
		return seen[key] <= n
	}
}
