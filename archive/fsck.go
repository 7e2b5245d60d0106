package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"assay/internal/durable"
	"assay/internal/statcache"
	"assay/schemas"
)

// quarantineDir holds what a repair took out of the way. Nothing in it is ever
// deleted by assay, and nothing in it counts.
const quarantineDir = "assay/quarantine"

// FsckOptions says what Fsck may do.
type FsckOptions struct {
	Repair bool
}

// FsckReport is what Fsck found, and, with Repair, did. Findings are of before the
// repair.
type FsckReport struct {
	Findings    []schemas.Finding `json:"findings"` // worst first
	Sound       bool              `json:"sound"`    // no error and nothing unknown among them
	Blobs       int               `json:"blobs"`
	Bytes       int64             `json:"bytes"`
	Runs        int               `json:"runs"`
	Records     int               `json:"records"`
	Repaired    []string          `json:"repaired"`    // what was done, in order
	Quarantined []string          `json:"quarantined"` // files, by name in assay/quarantine
}

// fsck is one check of a store.
type fsck struct {
	s      *Store
	ctx    context.Context
	opts   FsckOptions
	report FsckReport

	bad      map[schemas.Digest]error // blobs whose bytes are wrong
	missing  map[schemas.Digest]bool  // blobs that a run needs
	sizes    map[schemas.Digest]int64 // blobs that are there
	runs     []RunInfo
	badIndex bool
	odd      map[string]bool                    // files of the store that are none
	stamps   map[schemas.Digest]statcache.Stamp // of blobs when they were read
	names    *labels
	leftOut  []string     // runs that were removed
	faults   []indexFault // of an index that can be read
	unnoted  bool         // index.json is not what was noted when it was written

	// What a repair is to do.
	layoutFile bool
	formatFile bool
	records    bool
	caches     []*statcache.Table // with rows that are to go
	lies       map[string]string  // rows of the table of stored blobs
	remove     []string           // temporary files, leases and work folders of the dead
	journals   []string           // that cannot be read
}

// Fsck checks the whole store: every blob's digest, the index against the blobs,
// the record index, journals, leases and temporary files. It changes nothing
// unless Repair is set: then wrong blobs and unreadable journals are moved to
// assay/quarantine, what dead processes left is removed, the record index and, if
// it is lost or damaged, index.json are made anew from the blobs.
func (s *Store) Fsck(ctx context.Context, opts FsckOptions) (FsckReport, error) {
	f := &fsck{s: s, ctx: ctx, opts: opts, bad: map[schemas.Digest]error{}, missing: map[schemas.Digest]bool{},
		sizes: map[schemas.Digest]int64{}, names: s.newLabels(), odd: map[string]bool{}, lies: map[string]string{}, stamps: map[schemas.Digest]statcache.Stamp{}}
	f.report = FsckReport{Findings: []schemas.Finding{}, Repaired: []string{}, Quarantined: []string{}}
	fail := func(err error) (FsckReport, error) { return f.report, fmt.Errorf("fsck %s: %w", s.dir, err) }
	usable, err := f.checkFolders()
	if err != nil || !usable {
		f.finish()
		if err != nil {
			return fail(err)
		}
		return f.report, nil
	}
	if err := f.checkOdd(); err != nil {
		return fail(err)
	}
	if opts.Repair {
		if err := f.moveOdd(); err != nil {
			return fail(fmt.Errorf("repair: %w", err))
		}
		unlock, err := s.lockMaintenance()
		if err != nil {
			return fail(err)
		}
		defer func() { _ = unlock() }()
	}
	for _, check := range []func() error{f.checkFormatFile, f.checkLayoutFile, f.checkBlobs, f.checkIndex, f.checkRecords, f.checkJournals, f.checkLeases, f.checkTemps, f.checkWork, f.checkQuarantine, f.checkCaches} {
		if err := check(); err != nil {
			return fail(err)
		}
	}
	if err := f.lookAgain(); err != nil {
		return fail(err)
	}
	f.tellBlobs()
	f.finish()
	if opts.Repair {
		if err := f.repair(); err != nil {
			return fail(fmt.Errorf("repair: %w", err))
		}
	}
	return f.report, nil
}

var severityOrder = map[schemas.Severity]int{schemas.SeverityError: 0, schemas.SeverityUnknown: 1, schemas.SeverityWarning: 2, schemas.SeverityInfo: 3}

func (f *fsck) finish() {
	list := f.report.Findings
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if severityOrder[a.Severity] != severityOrder[b.Severity] {
			return severityOrder[a.Severity] < severityOrder[b.Severity]
		}
		if a.ID != b.ID {
			return a.ID < b.ID
		}
		return a.Run+a.Path+string(a.Blob) < b.Run+b.Path+string(b.Blob)
	})
	f.report.Sound = len(list) == 0 || severityOrder[list[0].Severity] > severityOrder[schemas.SeverityUnknown]
}

func (f *fsck) add(x schemas.Finding) { f.report.Findings = append(f.report.Findings, x) }

func (f *fsck) checkLayoutFile() error {
	b, err := readLimited(f.s.path("oci-layout"), 1<<16)
	if err == nil && strings.Contains(string(b), `"imageLayoutVersion"`) {
		return nil
	}
	f.layoutFile = true
	if f.odd["oci-layout"] {
		return nil // told already
	}
	f.add(schemas.Finding{ID: "fsck.layout", Severity: schemas.SeverityError, Subject: "oci-layout", File: "oci-layout",
		Message: "it is missing or damaged: other OCI tools do not take the folder for a layout", Remedy: "`assay fsck --repair` writes it anew"})
	return nil
}

// checkBlobs hashes every blob, a few at a time.
func (f *fsck) checkBlobs() error {
	entries, err := os.ReadDir(f.s.path(blobsDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !schemas.Digest("sha256:"+e.Name()).Valid() && !durable.IsTemp(e.Name()) {
			f.add(schemas.Finding{ID: "fsck.name", Severity: schemas.SeverityWarning, Subject: blobsDir + "/" + e.Name(), File: blobsDir + "/" + e.Name(),
				Message: "it is no blob of this store: its name is no digest", Remedy: "move it away"})
		}
	}
	list, err := f.s.blobs(f.ctx)
	if err != nil {
		return err
	}
	var total int64
	for _, b := range list {
		total += b.size
		f.sizes[b.digest] = b.size
	}
	var mu sync.Mutex
	m := newMeter(f.ctx, PhaseVerify, total)
	g, ctx := errgroup.WithContext(f.ctx)
	g.SetLimit(min(runtime.GOMAXPROCS(0), 8))
	for _, b := range list {
		g.Go(func() error {
			bad, err := f.s.hashBlob(ctx, b.digest, m)
			mu.Lock()
			defer mu.Unlock()
			if bad != nil {
				f.bad[b.digest], f.stamps[b.digest] = bad, b.stamp
			}
			return err
		})
	}
	err = g.Wait()
	m.end()
	if err != nil {
		return err
	}
	f.report.Blobs, f.report.Bytes = len(list), total
	return f.lookAgain()
}

// lookAgain forgets faults of blobs that were collected, or written anew, since
// they were read.
func (f *fsck) lookAgain() error {
	for d := range f.bad {
		info, err := os.Lstat(f.s.blobPath(d))
		if errors.Is(err, fs.ErrNotExist) {
			delete(f.bad, d)
			delete(f.sizes, d)
			continue
		}
		if err != nil || statcache.StampOf(info) == f.stamps[d] {
			continue
		}
		f.stamps[d] = statcache.StampOf(info)
		bad, err := f.s.hashBlob(f.ctx, d, nil)
		if err != nil {
			return err
		}
		f.sizes[d] = info.Size()
		if f.bad[d] = bad; bad == nil {
			delete(f.bad, d)
		}
	}
	return nil
}

// size is that of a blob as it is now: it may have been stored, replaced or
// collected after the blobs were listed. A new one is read too.
func (f *fsck) size(d schemas.Digest, want int64) (size int64, there bool, err error) {
	if size, there = f.sizes[d]; there && (size == want || f.bad[d] != nil) {
		return size, true, nil
	}
	info, err := os.Lstat(f.s.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		delete(f.sizes, d)
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	f.stamps[d], f.sizes[d] = statcache.StampOf(info), info.Size()
	bad, err := f.s.hashBlob(f.ctx, d, nil)
	if err != nil {
		return 0, false, err
	}
	if bad != nil {
		f.bad[d] = bad
	}
	return info.Size(), true, nil
}

// hashBlob says what is wrong with a blob. One that is gone was collected
// meanwhile.
func (s *Store) hashBlob(ctx context.Context, d schemas.Digest, m *meter) (bad, err error) {
	r, _, err := s.src.open(blobName(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return err, nil //nolint:nilerr // it is the blob that is at fault, not the check
	}
	defer r.Close()
	h := newHashReader(ctx, r)
	n, err := io.CopyBuffer(m, h, make([]byte, 256<<10))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return err, nil //nolint:nilerr // as above
	}
	if got := h.digest(); got != d {
		return &CorruptError{Blob: d, Err: fmt.Errorf("its %d bytes hash to %s", n, got)}, nil
	}
	return nil, nil
}

// tellBlobs turns wrong and missing blobs into findings that say what they are.
func (f *fsck) tellBlobs() {
	if len(f.bad) == 0 && len(f.missing) == 0 {
		return
	}
	digest := map[string]schemas.Digest{}
	users := map[schemas.Digest]int{}
	for _, r := range f.runs {
		digest[r.ID] = r.Digest
		f.names.manifest(r.Digest)
		f.names.name(r.Digest, kindManifest, r.ID, "", "")
		if m, err := f.s.manifestOf(r.Digest); err == nil {
			for _, l := range append(m.Layers, m.Config) {
				users[digestOf(l)]++
			}
		}
	}
	var rest []schemas.Digest // records and trees of runs that are not sealed
	for d := range f.sizes {
		if f.names.of[d] == nil && f.bad[d] == nil {
			rest = append(rest, d)
		}
	}
	f.names.learn(rest)
	tell := func(d schemas.Digest, id, message, remedy string, severity schemas.Severity) {
		l := f.names.at(d)
		x := schemas.Finding{ID: id, Severity: severity, Subject: l.Kind, Blob: d, Run: l.Run, Stage: l.Stage, Trial: l.Trial, Path: l.Path, Message: message, Remedy: remedy}
		if run, ok := digest[l.Run]; ok {
			x.Run = string(run)
		}
		if n := users[d]; n > 1 {
			x.Message += fmt.Sprintf("; %d runs use it", n)
		}
		if l.Files > 1 {
			x.Message += fmt.Sprintf("; %d files have bytes in it", l.Files)
		}
		f.add(x)
	}
	for d, err := range f.bad {
		var corrupt *CorruptError
		if errors.As(err, &corrupt) {
			tell(d, "fsck.blob", corrupt.Err.Error(), "`assay fsck --repair` moves it to assay/quarantine; then restore it from another copy, or run again", schemas.SeverityError)
		} else {
			tell(d, "fsck.unreadable", err.Error(), "make it readable and check again", schemas.SeverityUnknown)
		}
	}
	for d := range f.missing {
		tell(d, "fsck.missing", "the blob is not there", "restore it from another copy of the run, or give the run up with `assay rm`", schemas.SeverityError)
	}
}

// rel shortens a path below the store.
func (f *fsck) rel(path string) string {
	if r, err := filepath.Rel(f.s.dir, path); err == nil {
		return filepath.ToSlash(r)
	}
	return path
}
