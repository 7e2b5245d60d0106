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
	formatFile    = "assay/format.json"
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
	if err := checkFormat(abs); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	s := &Store{dir: abs, Layout: &Layout{src: folderSource{abs}, name: abs}}
	if err := s.prepare(); err != nil && !readOnly(err) {
		if errors.Is(err, durable.ErrNotFolder) {
			err = fmt.Errorf("%w: %s moves it to assay/quarantine", err, fixable)
		}
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return s, nil
}

// errFormat is wrapped when assay/format.json cannot be read in what looks like a
// store otherwise.
var errFormat = errors.New("assay/format.json is damaged")

// checkFormat reads assay/format.json.
func checkFormat(dir string) error {
	b, err := readLimited(filepath.Join(dir, formatFile), 1<<16)
	switch {
	case errors.Is(err, fs.ErrNotExist) && looksLikeStore(dir):
		return fmt.Errorf("%w: %w: %w, and the rest of a store is there: %s writes it anew", ErrNotStore, errFormat, fs.ErrNotExist, fixable)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: assay/format.json: %w: `assay run` makes one, or name another with --store", ErrNotStore, fs.ErrNotExist)
	case errors.Is(err, durable.ErrNotRegular):
		return fmt.Errorf("%w: %w: %w: %s moves it to assay/quarantine", ErrNotStore, errFormat, err, fixable)
	case err != nil:
		return err
	}
	var f formatDoc
	if err := json.Unmarshal(b, &f); err != nil || f.Format != formatName || f.Version < 1 {
		err := fmt.Errorf("%w: assay/format.json says %.200q", ErrNotStore, b)
		if looksLikeStore(dir) {
			err = fmt.Errorf("%w: %w: %s writes it anew", err, errFormat, fixable)
		}
		return err
	}
	if f.Version != FormatVersion {
		return fmt.Errorf("its format is version %d, this assay reads version %d: use a newer assay", f.Version, FormatVersion)
	}
	return nil
}

// looksLikeStore says that a folder was a store: it has the parts that come after
// the blobs, and an index or something in their folder.
func looksLikeStore(dir string) bool {
	for _, sub := range []string{"assay", blobsDir} {
		info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(sub)))
		if err != nil || sub == "assay" && !info.IsDir() {
			return false
		}
	}
	for _, name := range []string{"oci-layout", indexName, recordIndexName, indexLockName} {
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			return true
		}
	}
	return false
}

// OpenDamaged opens a store that Open refuses because something stands in the
// place of its folders, or because assay/format.json is lost, for Fsck alone. What
// does not look like a store, and one of another version, is refused with Open's
// error.
func OpenDamaged(dir string) (*Store, error) {
	s, err := Open(dir)
	if !errors.Is(err, errFormat) && !errors.Is(err, durable.ErrNotFolder) {
		return s, err
	}
	abs, aerr := filepath.Abs(dir)
	if aerr != nil || !isFolder(filepath.Join(abs, "assay")) {
		return nil, err
	}
	return &Store{dir: abs, Layout: &Layout{src: folderSource{abs}, name: abs}}, nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
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
			return nil, fmt.Errorf("create store %s: %w: the folder holds %s, which is no part of a store", dir, ErrNotStore, name)
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
