package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// DefaultGrace is how long a blob that nothing names is kept: time for work that
// holds no lease, and for a clock that is set back.
const DefaultGrace = time.Hour

const (
	gcLockName = "assay/gc.lock"
	// leaseMargin covers the file system's clock, which is coarser than ours.
	leaseMargin = 2 * time.Second
	clockMargin = 20 * time.Millisecond
	sweepBatch  = 64
)

// ErrBusy is wrapped when another gc or repair is at work.
var ErrBusy = errors.New("another gc or fsck --repair is at work in this store")

// GCOptions says what Collect may delete.
type GCOptions struct {
	Grace time.Duration // blobs younger than this are kept
	Apply bool          // delete; otherwise only say what would be
}

// Garbage is a blob that nothing needs.
type Garbage struct {
	Digest   schemas.Digest `json:"digest"`
	Bytes    int64          `json:"bytes"`
	Modified time.Time      `json:"modified"`
	blobLabel
}

// GCReport is what Collect found, and, with Apply, did.
type GCReport struct {
	Applied      bool        `json:"applied"`
	Garbage      []Garbage   `json:"garbage"` // deleted, or to be deleted; by run, stage and path
	GarbageBytes int64       `json:"garbage_bytes"`
	Kept         int         `json:"kept"` // needed blobs
	KeptBytes    int64       `json:"kept_bytes"`
	Young        int         `json:"young"` // not needed, but within the grace period or under a lease
	YoungBytes   int64       `json:"young_bytes"`
	Cutoff       time.Time   `json:"cutoff"`
	Leases       []LeaseInfo `json:"leases"`      // that hold gc back
	SourceRuns   []KeptRun   `json:"source_runs"` // in no index, but kept for the run that names them
	// Findings are blobs that are no files: they are left alone.
	Findings     []schemas.Finding `json:"findings"`
	Grace        time.Duration     `json:"-"`
	GraceSeconds float64           `json:"grace_s"`
}

// KeptRun is a run that is kept because another one was made from it.
type KeptRun struct {
	Run    schemas.Digest `json:"run"`
	UsedBy schemas.Digest `json:"used_by"`
}

// Collect finds the blobs that no run of the index (tagged or not), no source run
// of one, no journal of an unsealed run and no other manifest of the index needs,
// and that are older than the grace period and than every lease; with Apply it
// deletes them. It is safe while runs are written. A document that cannot be read
// stops it before anything is deleted.
func (s *Store) Collect(ctx context.Context, opts GCOptions) (GCReport, error) {
	fail := func(err error) (GCReport, error) { return GCReport{}, fmt.Errorf("gc %s: %w", s.dir, err) }
	if opts.Grace < 0 {
		return fail(fmt.Errorf("grace period %s is negative", opts.Grace))
	}
	if opts.Apply {
		unlock, err := s.lockMaintenance()
		if err != nil {
			return fail(err)
		}
		defer func() { _ = unlock() }()
	}
	r := GCReport{Applied: opts.Apply, Grace: opts.Grace, GraceSeconds: opts.Grace.Seconds(), Garbage: []Garbage{}, SourceRuns: []KeptRun{}, Findings: []schemas.Finding{}}
	// The order matters: time, leases, journals, index, blobs. Whatever begins
	// after a step leaves fresh blobs; whatever ends has put its name into a later one.
	if err := r.takeLeases(s, time.Now()); err != nil {
		return fail(err)
	}
	m := s.newMarker(ctx)
	if err := m.roots(); err != nil {
		return fail(err)
	}
	if err := r.sort(ctx, s, m); err != nil {
		return fail(err)
	}
	if opts.Apply {
		if err := s.sweep(ctx, &r); err != nil {
			return fail(err)
		}
	}
	return r, nil
}

// lockMaintenance keeps gc and repairs apart.
func (s *Store) lockMaintenance() (unlock func() error, err error) {
	unlock, ok, err := durable.TryLock(s.path(gcLockName))
	if err == nil && !ok {
		err = ErrBusy
	}
	return unlock, err
}

// takeLeases sets the cutoff: before now by the grace period, and before every
// lease that is not provably dead.
func (r *GCReport) takeLeases(s *Store, now time.Time) error {
	list, err := s.Leases()
	if err != nil {
		return err
	}
	r.Cutoff, r.Leases = now.Add(-r.Grace-clockMargin), []LeaseInfo{}
	for _, l := range list {
		if l.State == LeaseDead {
			continue
		}
		r.Leases = append(r.Leases, l)
		if before := l.Started.Add(-r.Grace - leaseMargin); before.Before(r.Cutoff) {
			r.Cutoff = before
		}
	}
	return nil
}

// sort tells the needed blobs from the young and the garbage, and names the
// garbage.
func (r *GCReport) sort(ctx context.Context, s *Store, m *marker) error {
	list, err := s.blobs(ctx)
	if err != nil {
		return err
	}
	var garbage []schemas.Digest
	for _, b := range list {
		switch {
		case b.what != "":
			r.Findings = append(r.Findings, b.odd())
		case m.live[b.digest]:
			r.Kept++
			r.KeptBytes += b.size
		case b.modified.After(r.Cutoff):
			r.Young++
			r.YoungBytes += b.size
		default:
			garbage = append(garbage, b.digest)
			r.Garbage = append(r.Garbage, Garbage{Digest: b.digest, Bytes: b.size, Modified: b.modified.UTC()})
			r.GarbageBytes += b.size
		}
	}
	names := s.newLabels()
	names.learn(garbage)
	for i := range r.Garbage {
		r.Garbage[i].blobLabel = *names.at(r.Garbage[i].Digest)
	}
	sort.Slice(r.Garbage, func(i, j int) bool { return garbageLess(r.Garbage[i], r.Garbage[j]) })
	return r.keptSources(s, m)
}

func garbageLess(a, b Garbage) bool {
	switch {
	case a.Run != b.Run:
		return a.Run < b.Run
	case a.Stage != b.Stage:
		return a.Stage < b.Stage
	case a.Trial != b.Trial:
		return a.Trial < b.Trial
	case a.Path != b.Path:
		return a.Path < b.Path
	}
	return a.Digest < b.Digest
}

// keptSources lists the source runs that are in no index.
func (r *GCReport) keptSources(s *Store, m *marker) error {
	runs, err := s.Runs(m.ctx)
	if err != nil {
		return err
	}
	listed := map[schemas.Digest]bool{}
	for _, run := range runs {
		listed[run.Digest] = true
	}
	for source, by := range m.kept {
		if !listed[source] {
			r.SourceRuns = append(r.SourceRuns, KeptRun{source, by})
		}
	}
	sort.Slice(r.SourceRuns, func(i, j int) bool { return r.SourceRuns[i].Run < r.SourceRuns[j].Run })
	return nil
}

// sweep deletes the garbage, manifests first, so that a sweep cut short leaves no
// manifest of a run that is incomplete. Each blob's time is looked at once more,
// under the lock that those who freshen one share.
func (s *Store) sweep(ctx context.Context, r *GCReport) error {
	order := append([]Garbage(nil), r.Garbage...)
	sort.SliceStable(order, func(i, j int) bool { return order[i].Kind == kindManifest && order[j].Kind != kindManifest })
	spared := map[schemas.Digest]bool{}
	records := false
	progress := newMeter(ctx, PhaseDelete, r.GarbageBytes)
	defer progress.end()
	for at := 0; at < len(order); at += sweepBatch {
		if err := ctx.Err(); err != nil {
			return err
		}
		batch := order[at:min(at+sweepBatch, len(order))]
		if err := s.sweepSome(batch, r.Cutoff, spared); err != nil {
			return err
		}
		for _, g := range batch {
			records = records || g.Kind == kindRecord
			progress.add(g.Bytes)
		}
	}
	left := r.Garbage[:0]
	for _, g := range r.Garbage {
		if spared[g.Digest] {
			r.Young++
			r.YoungBytes += g.Bytes
			r.GarbageBytes -= g.Bytes
			continue
		}
		left = append(left, g)
	}
	r.Garbage = left
	if records {
		if err := s.pruneRecordIndex(); err != nil {
			return err
		}
	}
	return s.pruneRemovals()
}

func (s *Store) sweepSome(batch []Garbage, cutoff time.Time, spared map[schemas.Digest]bool) error {
	unlock, err := durable.Lock(s.path(sweepLockName))
	if err != nil {
		return err
	}
	for _, g := range batch {
		path := s.blobPath(g.Digest)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.ModTime().After(cutoff) {
			spared[g.Digest] = true // somebody uses it again
			continue
		}
		if err == nil {
			err = durable.Unlink(path)
		}
		if err != nil {
			return errors.Join(err, unlock())
		}
	}
	if err := unlock(); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(s.blobPath(batch[0].Digest)))
}

// pruneRecordIndex drops the lines whose records are gone.
func (s *Store) pruneRecordIndex() error {
	unlock, err := durable.Lock(s.path(recordLockName))
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	lines, err := s.readRecordIndex()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, l := range lines {
		if _, err := os.Lstat(s.blobPath(l.Digest)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		out.Write(append(b, '\n'))
	}
	return durable.WriteFile(s.path(recordIndexName), out.Bytes(), 0o644)
}
