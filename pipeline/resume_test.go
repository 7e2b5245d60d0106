package pipeline_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"assay/archive"
	"assay/internal/durable"
	"assay/pipeline"
	"assay/schemas"
)

// twoTrials is a small experiment with everything that resume must respect: a
// pure stage, a service per trial with two stages, and a fan-in.
func twoTrials(t *testing.T) *lab {
	l := newLab(t)
	l.exp.Trials.Repeat = 2
	l.exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"serve"}}}
	withService := func(d *schemas.StageDef) { d.Config["reuse"] = false; d.Service = "engine" }
	l.stage("gen", "command", "echo generated", nil)
	l.stage("warm", "command", "echo warm", withService)
	l.stage("use", "command", "cat ${stage.gen.out}; echo ${stage.warm.out}", withService)
	l.stage("sum", "command", "echo sum", func(d *schemas.StageDef) { d.Scope = schemas.ScopeRun; d.Needs = []string{"use"} })
	return l
}

// failFrom makes every durable operation fail from the n-th on, as a disk that
// is full stays full. It counts operations when n is 0.
func failFrom(t *testing.T, n int64, cause error) *atomic.Int64 {
	var count atomic.Int64
	durable.SetHook(func(op durable.Op, path string) error {
		if c := count.Add(1); n > 0 && c >= n {
			return fmt.Errorf("operation %d: %w", c, cause)
		}
		return nil
	})
	t.Cleanup(func() { durable.SetHook(nil) })
	return &count
}

// TestDiskFullAtEveryWrite runs the experiment with the disk full from each
// operation on: nothing half is ever published, and with room again --resume
// finishes the run.
func TestDiskFullAtEveryWrite(t *testing.T) {
	clean := twoTrials(t)
	counter := failFrom(t, 0, nil)
	if out := clean.mustRun(); out.Status != schemas.RunPassed {
		t.Fatalf("clean run: %+v", out)
	}
	total := counter.Load()
	durable.SetHook(nil)
	step := int64(5) // the end-to-end test kills at each; here a sample will do
	if os.Getenv("ASSAY_EXHAUSTIVE") != "" {
		step = 1
	}
	for n := int64(1); n <= total; n += step {
		l := twoTrials(t)
		failFrom(t, n, syscall.ENOSPC)
		_, err := pipeline.Run(context.Background(), l.options())
		durable.SetHook(nil)
		published := runsOf(t, l)
		switch {
		case err == nil && published != 1:
			t.Fatalf("full from %d of %d: no error, yet %d runs", n, total, published)
		case err != nil && published == 1: // the last step: in the index, its folder not yet synced
			l.verify()
		}
		if published == 1 {
			l.verify()
			left, err := pipeline.FindUnsealed(l.store.Dir(), l.sealed)
			if err != nil || len(left) != 0 {
				t.Fatalf("full from %d of %d: a published run counts as interrupted: %v %v", n, total, left, err)
			}
			continue
		}
		finish(t, l, n)
	}
	t.Logf("%d operations", total)
}

func runsOf(t *testing.T, l *lab) int {
	t.Helper()
	store, err := archive.Open(l.store.Dir())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := store.Runs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return len(runs)
}

// finish goes on with what was interrupted, or starts anew where not even the
// start was written down.
func finish(t *testing.T, l *lab, n int64) {
	t.Helper()
	opts := l.options()
	found, err := pipeline.FindUnsealed(l.store.Dir(), l.sealed)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		u, err := pipeline.PickUnsealed(l.store.Dir(), "", opts.Plan.Digest, l.sealed)
		if err != nil {
			t.Fatal(err)
		}
		opts.Resume = &u
	}
	l.active = 0
	out, err := pipeline.Run(context.Background(), opts)
	if err != nil || out.Status != schemas.RunPassed {
		t.Fatalf("after operation %d: %v, %+v", n, err, out)
	}
	if len(found) > 0 && out.RunID != found[0].RunID {
		t.Fatalf("resumed as %s, was %s", out.RunID, found[0].RunID)
	}
	l.verify()
}

func TestResumeTakesWholeLifetimesOnly(t *testing.T) {
	l := twoTrials(t)
	// Cut after the second trial's first stage: its lifetime must start again,
	// the first trial's must not.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opts := l.options()
	opts.Events = func(ev pipeline.Event) {
		if ev.Type == "end" && ev.Node == "warm@t002" {
			durable.SetHook(func(durable.Op, string) error { return syscall.EIO })
		}
	}
	t.Cleanup(func() { durable.SetHook(nil) })
	if _, err := pipeline.Run(ctx, opts); err == nil {
		t.Fatal("a run whose disk broke gave no error")
	}
	durable.SetHook(nil)
	l.ran, l.started, l.active = nil, nil, 0
	u, err := pipeline.PickUnsealed(l.store.Dir(), "", opts.Plan.Digest, l.sealed)
	if err != nil {
		t.Fatal(err)
	}
	again := l.options()
	again.Resume = &u
	out, err := pipeline.Run(context.Background(), again)
	if err != nil || out.Status != schemas.RunPassed {
		t.Fatalf("%v %+v", err, out)
	}
	if got, want := fmt.Sprint(l.ran, l.started), "[warm@t002 use@t002 sum] [engine-2]"; got != want {
		t.Errorf("after resume ran %s, want %s", got, want)
	}
}

// What was damaged while the run lay interrupted is made anew, and the run that is
// sealed is whole.
func TestResumeMakesDamagedResultsAnew(t *testing.T) {
	l := twoTrials(t)
	opts := l.options()
	opts.Events = func(ev pipeline.Event) {
		if ev.Type == "end" && ev.Node == "warm@t002" {
			durable.SetHook(func(durable.Op, string) error { return syscall.EIO })
		}
	}
	t.Cleanup(func() { durable.SetHook(nil) })
	if _, err := pipeline.Run(context.Background(), opts); err == nil {
		t.Fatal("a run whose disk broke gave no error")
	}
	durable.SetHook(nil)
	packs, err := filepath.Glob(filepath.Join(l.store.Dir(), "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packs {
		b, err := os.ReadFile(p)
		if err == nil && len(b) > 4 && string(b[:4]) == "\x28\xb5\x2f\xfd" {
			b[len(b)/2] ^= 1
			err = os.WriteFile(p, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.ran, l.started, l.active = nil, nil, 0
	u, err := pipeline.PickUnsealed(l.store.Dir(), "", opts.Plan.Digest, l.sealed)
	if err != nil {
		t.Fatal(err)
	}
	again := l.options()
	again.Resume = &u
	out, err := pipeline.Run(context.Background(), again)
	if err != nil || out.Status != schemas.RunPassed {
		t.Fatalf("%v %+v", err, out)
	}
	l.verify()
}

func TestResumeRefusesAnotherExperiment(t *testing.T) {
	l := twoTrials(t)
	opts := l.options()
	failFrom(t, 60, syscall.EIO)
	_, _ = pipeline.Run(context.Background(), opts) // the error is the point; what it left is looked at below
	durable.SetHook(nil)
	found, err := pipeline.FindUnsealed(l.store.Dir(), l.sealed)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	if _, err := pipeline.PickUnsealed(l.store.Dir(), "", "sha256:other", l.sealed); err == nil {
		t.Error("another experiment's run was picked")
	}
	if _, err := pipeline.PickUnsealed(l.store.Dir(), found[0].RunID, "sha256:other", l.sealed); err == nil {
		t.Error("a named run of another experiment was picked")
	}
	if _, err := pipeline.PickUnsealed(l.store.Dir(), "20000101T000000Z-00000000", opts.Plan.Digest, l.sealed); err == nil {
		t.Error("a run that does not exist was picked")
	}
}
