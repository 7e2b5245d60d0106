package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	"assay/internal/durable"
)

// Store is an assay store on disk. Its methods may be called from several
// goroutines, and several processes of one host may have it open.
type Store struct {
	*Layout
	index  recordIndex
	dir    string
	leases atomic.Int64 // held through this value
	caches caches
	whole  sync.Map // the stamps of blobs that were written, or read and found whole, by digest
}

type formatDoc struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

const (
	formatName    = "assay-store"
	ociLayoutText = `{"imageLayoutVersion":"1.0.0"}`
	emptyIndex    = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`
)

// ErrNotStore is wrapped when a folder is no assay store.
var ErrNotStore = errors.New("not an assay store")

// Open opens an existing store. It sweeps temporary files that dead processes
// left.
func Open(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	b, err := readLimited(filepath.Join(abs, "assay", "format.json"), 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open store %s: %w (no assay/format.json): `assay run` makes one, or name another with --store", dir, errors.Join(ErrNotStore, fs.ErrNotExist))
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	var f formatDoc
	if err := json.Unmarshal(b, &f); err != nil || f.Format != formatName {
		return nil, fmt.Errorf("open store %s: %w: assay/format.json says %q", dir, ErrNotStore, b)
	}
	if f.Version != FormatVersion {
		return nil, fmt.Errorf("open store %s: its format is version %d, this assay reads version %d: use a newer assay", dir, f.Version, FormatVersion)
	}
	s := &Store{dir: abs, Layout: &Layout{src: folderSource{abs}, name: abs}}
	if err := s.prepare(); err != nil && !readOnly(err) {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return s, nil
}

// prepare makes folders that a copy of a store may lack, and sweeps.
func (s *Store) prepare() error {
	for _, sub := range storeDirs {
		if err := durable.MkdirAll(s.path(sub)); err != nil {
			return err
		}
	}
	for _, sub := range []string{"", "assay", "assay/records", "assay/work", "assay/journals", leaseDir, blobsDir} {
		if err := durable.SweepTemps(s.path(sub)); err != nil {
			return fmt.Errorf("sweep temporary files: %w", err)
		}
	}
	return nil
}

// readOnly says that a store may only be read, which is enough to verify it.
func readOnly(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

const blobsDir = "blobs/sha256"

var storeDirs = []string{blobsDir, "assay/records", "assay/journals", "assay/work", leaseDir}

// Create makes a store in dir, which must not exist or be empty, and opens it.
func Create(dir string) (*Store, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create store %s: %w", dir, err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("create store %s: the folder is not empty", dir)
	}
	return create(dir)
}

// OpenOrCreate opens the store in dir, and makes it first when dir is missing,
// empty, or holds what a creation that was cut short left.
func OpenOrCreate(dir string) (*Store, error) {
	s, err := Open(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	entries, rerr := os.ReadDir(dir)
	if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		return nil, fmt.Errorf("create store %s: %w", dir, rerr)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case name == "blobs", name == "assay", name == "oci-layout", name == "index.json", durable.IsTemp(name):
		default:
			return nil, fmt.Errorf("create store %s: the folder holds %s, which is no part of a store", dir, name)
		}
	}
	return create(dir)
}

// create writes format.json last: with it the store exists. Several processes
// may do this at once, so what is there already is kept.
func create(dir string) (*Store, error) {
	for _, sub := range storeDirs {
		if err := durable.MkdirAll(filepath.Join(dir, sub)); err != nil {
			return nil, fmt.Errorf("create store %s: %w", dir, err)
		}
	}
	unlock, err := durable.Lock(filepath.Join(dir, "assay", "index.lock"))
	if err != nil {
		return nil, fmt.Errorf("create store %s: %w", dir, err)
	}
	defer func() { _ = unlock() }()
	format, _ := json.Marshal(formatDoc{Format: formatName, Version: FormatVersion})
	for _, f := range []struct{ name, text string }{
		{"oci-layout", ociLayoutText}, {"index.json", emptyIndex}, {"assay/format.json", string(format) + "\n"},
	} {
		path := filepath.Join(dir, f.name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := durable.WriteFile(path, []byte(f.text), 0o644); err != nil {
			return nil, fmt.Errorf("create store %s: %w", dir, err)
		}
	}
	return Open(dir)
}

// Dir returns the store's folder, absolute.
func (s *Store) Dir() string { return s.dir }

// WorkDir holds private folders of executions. Any of them may be removed when
// nobody uses it.
func (s *Store) WorkDir() string { return filepath.Join(s.dir, "assay", "work") }

// JournalDir holds the journals of runs.
func (s *Store) JournalDir() string { return filepath.Join(s.dir, "assay", "journals") }

// LeaseDir holds the leases of processes that write runs.
func (s *Store) LeaseDir() string { return filepath.Join(s.dir, "assay", "leases") }

func (s *Store) path(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }
