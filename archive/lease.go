package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

const (
	leaseDir    = "assay/leases"
	leaseSuffix = ".json"
	// sweepLockName is locked shared while a blob is freshened, and exclusively
	// while blobs are deleted.
	sweepLockName = "assay/sweep.lock"
	// leaseSettle is how long a lease of another container may be without its
	// kernel lock: between being written and being locked.
	leaseSettle = time.Minute
)

// LeaseInfo tells of a process that is, or was, writing to the store.
type LeaseInfo struct {
	Run     string    `json:"run"`
	Holder  string    `json:"holder"` // host, boot, PID namespace, PID and start of the process
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started_at"`
	// State is LeaseActive, LeaseDead or LeaseUnknown; it is not part of the file.
	State string `json:"state,omitempty"`
	File  string `json:"file,omitempty"`
}

// The states of a lease. An unknown one counts as active.
const (
	LeaseActive  = "active"
	LeaseDead    = "dead"
	LeaseUnknown = "unknown"
)

var leaseCount atomic.Int64

// Lease says that a run is being written. Until release is called, or this
// process is gone, no blob that is stored or reused from now on is garbage. Leases
// of processes that are provably gone are removed on the way.
func (s *Store) Lease(ctx context.Context, runID string) (release func() error, err error) {
	fail := func(err error) (func() error, error) { return nil, fmt.Errorf("lease of run %s: %w", runID, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if runID == "" || strings.ContainsAny(runID, "/\x00") || strings.HasPrefix(runID, ".") {
		return fail(fmt.Errorf("%q is no run id", runID))
	}
	if err := durable.MkdirAll(s.LeaseDir()); err != nil {
		return fail(err)
	}
	s.sweepLeases()
	host, _ := os.Hostname() // for people; the holder's token counts
	info := LeaseInfo{Run: runID, Holder: durable.Self(), Host: host, PID: os.Getpid(), Started: time.Now().UTC()}
	b, err := json.Marshal(info)
	if err != nil {
		return fail(err)
	}
	path := filepath.Join(s.LeaseDir(), runID+"."+durable.Self()+"-"+strconv.FormatInt(leaseCount.Add(1), 36)+leaseSuffix)
	if err := durable.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		// It may have its name already: a lease too many only delays gc.
		return fail(err)
	}
	unlock, ok, err := durable.TryLock(path)
	if err == nil && !ok {
		err = errors.New("another process holds its file")
	}
	if err != nil {
		return fail(errors.Join(err, durable.Remove(path)))
	}
	s.leases.Add(1)
	return func() error {
		s.leases.Add(-1)
		if err := errors.Join(durable.Remove(path), unlock()); err != nil {
			return fmt.Errorf("end lease of run %s: %w", runID, err)
		}
		return nil
	}, nil
}

// Leases lists the leases of the store with their states.
func (s *Store) Leases() ([]LeaseInfo, error) {
	entries, err := os.ReadDir(s.LeaseDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var out []LeaseInfo
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), leaseSuffix) || durable.IsTemp(e.Name()) {
			continue
		}
		l, err := readLease(filepath.Join(s.LeaseDir(), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // ended meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list leases: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// readLease reads a lease and decides on its state. One that cannot be
// understood is unknown since its file was made.
func readLease(path string) (LeaseInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return LeaseInfo{}, err
	}
	b, err := readLimited(path, 1<<16)
	if err != nil && !errors.Is(err, durable.ErrNotRegular) {
		return LeaseInfo{}, err
	}
	var l LeaseInfo
	if json.Unmarshal(b, &l) != nil || l.Holder == "" {
		run, _, _ := strings.Cut(filepath.Base(path), ".")
		l = LeaseInfo{Run: run}
	}
	if l.Started.IsZero() || info.ModTime().Before(l.Started) {
		l.Started = info.ModTime()
	}
	l.File = path
	if err != nil { // nobody wrote that as a lease: it is unknown, which counts
		l.State = LeaseUnknown
		return l, nil
	}
	l.State, err = leaseState(l, info.ModTime())
	return l, err
}

// leaseState asks for the process where it can be seen from here. In another
// container of this host only its kernel lock can; on another host nothing.
func leaseState(l LeaseInfo, written time.Time) (string, error) {
	switch {
	case durable.Dead(l.Holder):
		return LeaseDead, nil
	case durable.SameNamespace(l.Holder):
		return LeaseActive, nil
	case !durable.SameKernel(l.Holder):
		return LeaseUnknown, nil
	}
	unlock, free, err := durable.TryLock(l.File)
	if err != nil {
		return LeaseUnknown, nil //nolint:nilerr // a lock that cannot be asked for tells nothing
	}
	if !free {
		return LeaseActive, nil
	}
	defer func() { _ = unlock() }()
	if time.Since(written) < leaseSettle {
		return LeaseActive, nil
	}
	return LeaseDead, nil
}

// sweepLeases removes the leases of the dead. One that stays is harmless.
func (s *Store) sweepLeases() {
	list, err := s.Leases()
	if err != nil {
		return
	}
	for _, l := range list {
		if l.State == LeaseDead {
			_ = durable.Remove(l.File)
		}
	}
}

// freshen makes a stored blob as new as one just written, so that gc leaves it
// alone, and reports whether it is there. A blob of another user, whose time
// cannot be set, is reported missing, as is what is no file: it is then stored anew.
func (s *Store) freshen(d schemas.Digest) (bool, error) {
	unlock, err := durable.RLock(s.path(sweepLockName))
	if err != nil {
		return false, fmt.Errorf("keep blob %s: %w", d, err)
	}
	defer func() { _ = unlock() }()
	if err = durable.CheckPlain(s.blobPath(d)); err == nil {
		err = durable.Touch(s.blobPath(d))
	}
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, durable.ErrNotRegular), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EPERM):
		return false, nil
	}
	return false, fmt.Errorf("keep blob %s: %w", d, err)
}

// CheckTree reads every blob of a stored tree and checks its digest and that of
// its content. Under a lease it also keeps them from being collected, since the
// tree is about to be used again.
func (s *Store) CheckTree(ctx context.Context, treeBlob schemas.Digest) error {
	if s.leases.Load() > 0 {
		if err := s.freshenTree(treeBlob); err != nil {
			return fmt.Errorf("check tree %s: %w", treeBlob.Short(), err)
		}
	}
	return s.Layout.CheckTree(ctx, treeBlob)
}

func (s *Store) freshenTree(treeBlob schemas.Digest) error {
	t, err := s.treeBlobs(treeBlob)
	if err != nil {
		return err
	}
	if _, err := s.freshen(treeBlob); err != nil {
		return err
	}
	for _, b := range t.Blobs {
		if _, err := s.freshen(b.Digest); err != nil {
			return err
		}
	}
	return nil
}

// freshenRecords does the same for records that are about to be used again.
func (s *Store) freshenRecords(list []schemas.StoredRecord) error {
	if s.leases.Load() == 0 {
		return nil
	}
	for _, r := range list {
		for _, d := range []schemas.Digest{r.Digest, r.Record.Key.Preimage()} {
			if !d.Valid() {
				continue
			}
			if _, err := s.freshen(d); err != nil {
				return err
			}
		}
	}
	return nil
}
