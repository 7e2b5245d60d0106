package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"assay/internal/durable"
	"assay/schemas"
)

const journalSuffix = ".jsonl"

// storeFiles are the files whose names never change. Nobody can hold a lock that
// is none, or have written an index that cannot be opened, so what stands in the
// place of one can be moved away at any time.
var storeFiles = []string{"oci-layout", indexName, indexSumName, indexLockName, recordIndexName, removedName, recordLockName, sweepLockName, gcLockName,
	cacheDir + "/lock", cacheDir + "/files", cacheDir + "/inputs", cacheDir + "/blobs"}

// checkOdd looks for folders, links, pipes and devices where the store keeps
// files. Blobs are looked at with their content.
func (f *fsck) checkOdd() error {
	names := append([]string(nil), storeFiles...)
	for dir, suffixes := range map[string][]string{"assay/journals": {journalSuffix, journalSuffix + ".lock"}, leaseDir: {leaseSuffix}} {
		entries, err := os.ReadDir(f.s.path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			for _, suffix := range suffixes {
				if strings.HasSuffix(e.Name(), suffix) && !durable.IsTemp(e.Name()) {
					names = append(names, dir+"/"+e.Name())
				}
			}
		}
	}
	for _, name := range names {
		info, err := os.Lstat(f.s.path(name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return err
		}
		f.odd[name] = true
		f.add(schemas.Finding{ID: "fsck.type", Severity: schemas.SeverityError, Subject: name, File: name,
			Message: fmt.Sprintf("a %s stands where the store keeps a file; it is neither read nor followed", durable.TypeName(info.Mode())),
			Remedy:  fixable + " moves it to assay/quarantine"})
	}
	return nil
}

// moveOdd comes before everything else of a repair: the locks are among them.
func (f *fsck) moveOdd() error {
	if len(f.odd) == 0 {
		return nil
	}
	if err := durable.MkdirAll(f.s.path(quarantineDir)); err != nil {
		return err
	}
	for name := range f.odd {
		if durable.CheckPlain(f.s.path(name)) == nil {
			continue // another repair was here
		}
		if err := f.moveAway(f.s.path(name)); err != nil {
			return err
		}
	}
	clear(f.odd)
	return nil
}

// moveAway moves a path to quarantine.
func (f *fsck) moveAway(path string) error {
	name, err := f.freeName(filepath.Base(path))
	if err == nil {
		err = durable.Rename(path, f.s.path(quarantineDir+"/"+name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // collected, or sealed, meanwhile
	}
	if err != nil {
		return err
	}
	f.report.Quarantined = append(f.report.Quarantined, name)
	f.did("moved %s to %s/%s", f.rel(path), quarantineDir, name)
	return nil
}
