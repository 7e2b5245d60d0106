package probe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"assay/internal/durable"
	"assay/internal/loadgen"
	"assay/internal/report"
	"assay/schemas"
)

// The files of a result.
const (
	SummaryFile  = "probe.json"
	RequestsFile = "requests.jsonl.zst"
	ScheduleFile = "schedule.jsonl"
)

// Run sends a plan and keeps the result in a new folder below parent, named after
// the probe's id; it never writes into one that exists. Nothing is sent unless the
// schedule is on disk. dir is the folder, and the summary is there, whenever anything
// was sent, however it ended.
func Run(ctx context.Context, p *Plan, parent string) (doc schemas.Probe, dir string, err error) {
	dir = filepath.Join(parent, p.opts.ID)
	if err := newFolder(parent, p.opts.ID); err != nil {
		return doc, "", err
	}
	if err := p.writeSchedule(filepath.Join(dir, ScheduleFile)); err != nil {
		return doc, "", err
	}
	log, err := report.CreateRecords(filepath.Join(dir, RequestsFile))
	if err != nil {
		return doc, "", err
	}
	doc, err = p.Send(ctx, log.Write)
	return doc, dir, errors.Join(err, log.Close(), writeSummary(filepath.Join(dir, SummaryFile), doc))
}

// newFolder makes the folder of one result.
func newFolder(parent, id string) error {
	if err := durable.MkdirAll(parent); err != nil {
		return fmt.Errorf("folder of results: %w", err)
	}
	root, err := durable.OpenRoot(parent)
	if err != nil {
		return fmt.Errorf("folder of results: %w", err)
	}
	defer root.Close()
	if err := root.Mkdir(id); err != nil { // an error, too, if it exists
		return fmt.Errorf("folder of this result: %w", err)
	}
	return durable.SyncDir(parent)
}

func (p *Plan) writeSchedule(path string) error {
	var b bytes.Buffer
	err := line(&b, p.header)
	for _, r := range p.requests {
		err = errors.Join(err, line(&b, r.ScheduledRequest))
	}
	if err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	return durable.WriteFile(path, b.Bytes(), 0o644)
}

// digest is of the schedule's lines.
func digest(requests []loadgen.Request) (schemas.Digest, error) {
	h := sha256.New()
	for _, r := range requests {
		if err := line(h, r.ScheduledRequest); err != nil {
			return "", fmt.Errorf("schedule: %w", err)
		}
	}
	return schemas.DigestFromSum(h.Sum(nil)), nil
}

func line(w io.Writer, v any) error {
	b, err := schemas.Encode(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func writeSummary(path string, doc schemas.Probe) error {
	b, err := schemas.Encode(doc)
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := schemas.Validate("probe", b); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return durable.WriteFile(path, append(b, '\n'), 0o644)
}
