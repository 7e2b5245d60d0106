package pipeline_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"assay/internal/durable"
	"assay/pipeline"
)

// interrupt leaves an interrupted run behind.
func interrupt(t *testing.T, l *lab) pipeline.Unsealed {
	t.Helper()
	failFrom(t, 60, syscall.EIO)
	_, _ = pipeline.Run(context.Background(), l.options()) // the error is the point
	durable.SetHook(nil)
	found, err := pipeline.FindUnsealed(l.store.Dir(), l.sealed)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	return found[0]
}

// A journal that cannot be read is told, hides no other, and keeps nobody from
// running.
func TestDamagedJournals(t *testing.T) {
	l := twoTrials(t)
	u := interrupt(t, l)
	dir := filepath.Join(l.store.Dir(), "assay", "journals")
	good, err := os.ReadFile(filepath.Join(dir, u.RunID+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.SplitAfter(string(good), "\n")
	bad := map[string]string{
		"20010101T000000Z-00000001": "", "20010101T000000Z-00000002": whole[0] + "\n" + whole[1],
		"20010101T000000Z-00000003": strings.Replace(string(good), "engine-1", "engine-2", 1), "20010101T000000Z-00000004": strings.Join(whole[1:], ""),
	}
	for id, text := range bad {
		if err := os.WriteFile(filepath.Join(dir, id+".jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, damaged, err := pipeline.ListUnsealed(l.store.Dir(), l.sealed)
	if err != nil || len(found) != 1 || found[0].RunID != u.RunID || len(damaged) != len(bad) {
		t.Fatalf("found %v, damaged %v, %v", found, damaged, err)
	}
	for _, d := range damaged {
		id := strings.TrimSuffix(filepath.Base(d.File), ".jsonl")
		var refused *pipeline.ResumeError
		if _, err := pipeline.PickUnsealed(l.store.Dir(), id, u.Digest, l.sealed); !errors.As(err, &refused) || !strings.Contains(err.Error(), "fsck --repair") {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := pipeline.Run(context.Background(), l.options()); err != nil {
		t.Error(err)
	}
}

// A run that goes on after a torn line can be interrupted and go on again.
func TestResumeAfterTornLine(t *testing.T) {
	l := twoTrials(t)
	u := interrupt(t, l)
	path := filepath.Join(l.store.Dir(), "assay", "journals", u.RunID+".jsonl")
	for range 2 {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(`{"event":"record","rec`)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		u, err := pipeline.PickUnsealed(l.store.Dir(), u.RunID, u.Digest, l.sealed)
		if err != nil {
			t.Fatal(err)
		}
		opts := l.options()
		opts.Resume = &u
		failFrom(t, 12, syscall.EIO)
		_, _ = pipeline.Run(context.Background(), opts)
		durable.SetHook(nil)
		if _, damaged, err := pipeline.ListUnsealed(l.store.Dir(), l.sealed); err != nil || len(damaged) != 0 {
			t.Fatalf("%v, %v", damaged, err)
		}
	}
}

// An interrupted run is given up with all that kept what it stored, unless somebody
// may still be executing it.
func TestGiveUp(t *testing.T) {
	l := twoTrials(t)
	u := interrupt(t, l)
	dir := filepath.Join(l.store.Dir(), "assay")
	path := filepath.Join(dir, "journals", u.RunID+".jsonl")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	self := strings.Split(durable.Self(), ".")
	for what, holder := range map[string][]string{
		"another machine": {"00000000", "00000000", self[2], self[3], self[4]},
		"lives":           append(slices.Clone(self[:3]), "1", startOfInit(t)),
	} {
		start := durable.SumLine([]byte(`{"event":"start","time":"2001-01-01T00:00:00Z","start":{"run_id":"` + u.RunID + `","holder":"` + strings.Join(holder, ".") + `"}}`))
		if err := os.WriteFile(path, append(slices.Clone(good), start...), 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := pipeline.FindUnsealed(l.store.Dir(), l.sealed)
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		var refused *pipeline.ResumeError
		if err := pipeline.GiveUp(l.store.Dir(), found[0], nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	swept := ""
	if err := pipeline.GiveUp(l.store.Dir(), u, func(token string) error { swept = token; return nil }); err != nil || swept != u.Token {
		t.Fatalf("%v, swept %q, want %q", err, swept, u.Token)
	}
	for _, left := range []string{path, path + ".lock", filepath.Join(dir, "work", u.RunID)} {
		if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", left, err)
		}
	}
	if err := pipeline.GiveUp(l.store.Dir(), u, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("given up twice: %v", err)
	}
}

// startOfInit is when the first process began.
func startOfInit(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", "1", "stat"))
	if err != nil {
		t.Skip("no /proc here: no process can be proved alive")
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))[19]
}
