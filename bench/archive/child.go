package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"assay/archive"
	"assay/schemas"
)

// child does one job in a process of its own, so that its memory is its own:
// put STORE DIR, seal STORE DIR, runs STORE PREFIX COUNT, verify STORE, extract STORE DIR.
func child(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("child %q: want a job and a store", args)
	}
	s, err := archive.OpenOrCreate(args[1])
	if err != nil {
		return err
	}
	switch {
	case args[0] == "put" && len(args) == 3:
		_, _, err = s.PutTree(ctx, args[2])
	case args[0] == "seal" && len(args) == 3:
		err = seal(ctx, s, args[2], "r1", "bench")
	case args[0] == "runs" && len(args) == 4:
		err = sealMany(ctx, s, args[2], args[3])
	case args[0] == "verify":
		err = verify(ctx, s)
	case args[0] == "extract" && len(args) == 3:
		err = extract(ctx, s, args[2])
	default:
		return fmt.Errorf("child %q: no such job", args)
	}
	return err
}

// sealMany seals as many runs as count says, each with an output of its own.
func sealMany(ctx context.Context, s *archive.Store, prefix, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "assay-bench-runs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range n {
		id := fmt.Sprintf("%s-%03d", prefix, i)
		if err := os.WriteFile(filepath.Join(dir, "out"), []byte(id), 0o644); err != nil {
			return err
		}
		if err := seal(ctx, s, dir, id, id); err != nil {
			return fmt.Errorf("run %s: %w", id, err)
		}
	}
	return nil
}

// seal stores a folder as the output of the only stage of a run.
func seal(ctx context.Context, s *archive.Store, dir, id, tag string) error {
	_, blob, err := s.PutTree(ctx, dir)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	key, preimage, err := schemas.KeyOf(schemas.Preimage{Schema: schemas.KeyV1, Kind: "command"})
	if err != nil {
		return err
	}
	rec := schemas.StageRecord{Schema: schemas.StageRecordV1, Node: "gen@t001", Stage: "gen", Kind: "command", KindVersion: 1,
		Experiment: "bench/archive", Run: id, Trial: "t001", Attempt: 1, DefinitionKey: key, Key: key, Pure: true, Status: schemas.StagePassed,
		StartedAt: now, EndedAt: now, Inputs: []schemas.Input{}, Outputs: []schemas.Output{}, Tree: blob}
	d, err := s.PutRecord(ctx, rec, preimage)
	if err != nil {
		return err
	}
	exp := []byte(`{"name":"bench/archive","schema":"assay/experiment/v1","stage":{},"trials":{"order":"sequential","repeat":1,"seed":0}}`)
	run := schemas.Run{Schema: schemas.RunV1, ID: id, Experiment: rec.Experiment, Status: schemas.RunPassed, StartedAt: now, EndedAt: now,
		Plan: schemas.Plan{Schema: schemas.PlanV1, Experiment: rec.Experiment, Digest: schemas.DigestOf(exp)}, Preimages: []schemas.Digest{key.Preimage()},
		Records: []schemas.RunRecord{{Record: rec, Digest: d, Node: rec.Node, Path: "stages/gen/t001"}}}
	req := schemas.SealRequest{Run: run, Experiment: exp, Source: []byte("schema = \"assay/experiment/v1\"\n"), Tag: tag,
		Report: func(f schemas.FileSummary) (schemas.Report, error) {
			return schemas.Report{Schema: schemas.ReportV1, RunID: run.ID, Status: run.Status, Passed: true, StartedAt: now, EndedAt: now,
				Experiment: schemas.ReportExperiment{Name: run.Experiment, Digest: run.Plan.Digest}, Files: f}, nil
		}}
	_, err = s.Seal(ctx, req)
	return err
}

func sealed(ctx context.Context, s *archive.Store) (schemas.Digest, error) {
	runs, err := s.Runs(ctx)
	if err == nil && len(runs) != 1 {
		err = fmt.Errorf("%d runs, want 1", len(runs))
	}
	if err != nil {
		return "", err
	}
	return runs[0].Digest, nil
}

// verify fails for a fault in a blob, a file or a tree. The run is made up: that
// it contradicts its plan is no fault here.
func verify(ctx context.Context, s *archive.Store) error {
	d, err := sealed(ctx, s)
	if err != nil {
		return err
	}
	v, err := s.Verify(ctx, d)
	if err != nil {
		return err
	}
	for _, f := range v.Findings {
		if !strings.HasPrefix(f.ID, "archive.contradiction.") {
			return fmt.Errorf("%s: %s: %s", v.Verdict, f.ID, f.Message)
		}
	}
	return nil
}

func extract(ctx context.Context, s *archive.Store, dir string) error {
	d, err := sealed(ctx, s)
	if err != nil {
		return err
	}
	run, err := s.Run(ctx, d)
	if err != nil {
		return err
	}
	return run.Extract(ctx, filepath.Clean(dir))
}

// folderBytes is the size of everything below dir.
func folderBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
