package archive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"assay/internal/durable"
	"assay/schemas"
)

// storeFolders are the folders of a store, those above others first. Each may be a
// link to one.
var storeFolders = []string{"blobs", blobsDir, "assay", "assay/records", "assay/journals", "assay/work", leaseDir, cacheDir, quarantineDir}

// checkFolders looks for files, pipes and links that lead nowhere in the place of
// folders. Nothing else can be checked before they are gone: usable says that they
// are.
func (f *fsck) checkFolders() (usable bool, err error) {
	usable = true
	for _, name := range storeFolders {
		info, err := os.Lstat(f.s.path(name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && isFolder(f.s.path(name)) {
			continue
		}
		if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
			continue // the folder that it would be in is the one at fault
		}
		if err != nil {
			return false, err
		}
		x := schemas.Finding{ID: "fsck.type", Severity: schemas.SeverityError, Subject: name, File: name,
			Message: fmt.Sprintf("a %s stands where the store keeps a folder: nothing else could be checked", durable.TypeName(info.Mode())),
			Remedy:  fixable + " moves it to assay/quarantine and makes the folder anew; if it is a link, make what it leads to there again instead"}
		f.add(x)
		if !f.opts.Repair {
			usable = false
			continue
		}
		if name == "assay" {
			return false, fmt.Errorf("a %s stands in the place of %s: move it away by hand and repair again", durable.TypeName(info.Mode()), f.s.path(name))
		}
		if err := f.moveFolder(name); err != nil {
			return false, fmt.Errorf("repair: %w", err)
		}
	}
	if !f.opts.Repair {
		return usable, nil
	}
	for _, name := range storeDirs {
		if err := durable.MkdirAll(f.s.path(name)); err != nil {
			return false, fmt.Errorf("repair: %w", err)
		}
	}
	return true, nil
}

// moveFolder moves what stands in the place of a folder away. What stands in the
// place of quarantine stays beside it.
func (f *fsck) moveFolder(name string) error {
	if name != quarantineDir {
		// It is the last of the list, and may be odd itself.
		if info, err := os.Stat(f.s.path(quarantineDir)); err == nil && !info.IsDir() {
			if err := f.moveFolder(quarantineDir); err != nil {
				return err
			}
		}
		if err := durable.MkdirAll(f.s.path(quarantineDir)); err != nil {
			return err
		}
		if err := f.moveAway(f.s.path(name)); err != nil {
			return err
		}
		return durable.MkdirAll(f.s.path(name))
	}
	if isFolder(f.s.path(name)) {
		return nil
	}
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.odd%d", f.s.path(name), n)
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return err
			}
			continue
		}
		if err := durable.Rename(f.s.path(name), to); err != nil {
			return err
		}
		f.did("moved %s to %s", name, f.rel(to))
		return durable.MkdirAll(f.s.path(name))
	}
}

// checkFormatFile reads assay/format.json.
func (f *fsck) checkFormatFile() error {
	err := checkFormat(f.s.dir)
	if err == nil {
		return nil
	}
	if !errors.Is(err, errFormat) {
		return err
	}
	f.formatFile = true
	f.add(schemas.Finding{ID: "fsck.format", Severity: schemas.SeverityError, Subject: formatFile, File: formatFile,
		Message: "it does not say what this store is: no other command opens it",
		Remedy:  fmt.Sprintf("%s writes it anew as version %d; if a newer assay made this store, use that one", fixable, FormatVersion)})
	return nil
}

func (f *fsck) repairFormatFile() error {
	if !f.formatFile {
		return nil
	}
	path := f.s.path(formatFile)
	if _, err := os.Lstat(path); err == nil {
		if err := durable.MkdirAll(f.s.path(quarantineDir)); err != nil {
			return err
		}
		if err := f.moveAway(path); err != nil {
			return err
		}
	}
	b, err := json.Marshal(formatDoc{Format: formatName, Version: FormatVersion})
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return err
	}
	f.did("wrote %s", formatFile)
	return nil
}
