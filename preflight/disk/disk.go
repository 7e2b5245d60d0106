// Package disk checks that a file system has room.
package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"assay/schemas"

	"golang.org/x/sys/unix"
)

// Free returns the bytes that this user may still write at path.
type Free func(path string) (bytes int64, err error)

// Statfs asks the operating system.
func Statfs(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	free := st.Bavail * uint64(st.Bsize)
	if free > 1<<62 {
		free = 1 << 62
	}
	return int64(free), nil
}

// Check compares the room below dir, which need not exist yet, with need bytes.
func Check(subject, dir string, need int64, free Free) schemas.Finding {
	f := schemas.Finding{ID: "disk.room", Severity: schemas.SeverityError, Subject: subject}
	have, err := free(existing(dir))
	switch {
	case err != nil:
		f.Severity, f.Message, f.Remedy = schemas.SeverityUnknown, fmt.Sprintf("room at %s cannot be found out: %v", dir, err), "name another store"
	case have < need:
		f.Message = fmt.Sprintf("%s are free at %s, %s are asked for", schemas.Size(have), dir, schemas.Size(need))
		f.Remedy = "make room, name another store, or lower disk"
	default:
		f.Severity, f.Message = schemas.SeverityPass, fmt.Sprintf("the %s asked for are free", schemas.Size(need))
	}
	return f
}

// existing is the nearest folder upwards that is there.
func existing(dir string) string {
	for {
		up := filepath.Dir(dir)
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || up == dir {
			return dir
		}
		dir = up
	}
}
