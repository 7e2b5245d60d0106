// Package paths checks that files, folders and programs exist and can be used.
package paths

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"assay/schemas"
)

// Check looks at a file or folder that must exist and be readable. subject says
// what it is for ("stage replay: workload"); path is absolute.
func Check(subject, path string) schemas.Finding {
	f := schemas.Finding{ID: "path.readable", Severity: schemas.SeverityError, Subject: subject, File: path}
	link, err := os.Lstat(path)
	if err != nil {
		return absent(f, path, err)
	}
	fi, err := os.Stat(path)
	if err != nil {
		if link.Mode()&fs.ModeSymlink != 0 && errors.Is(err, fs.ErrNotExist) {
			target, _ := os.Readlink(path) // the message does without it
			f.ID, f.Message = "path.dangling", fmt.Sprintf("%s is a symbolic link to %s, which does not exist", path, target)
			f.Remedy = "make the link point at what is meant, or give that path itself"
			return f
		}
		return absent(f, path, err)
	}
	switch {
	case fi.IsDir():
		return checkFolder(f, path)
	case !fi.Mode().IsRegular():
		f.ID, f.Message, f.Remedy = "path.kind", fmt.Sprintf("%s is neither a regular file nor a folder (%s)", path, fi.Mode().Type()), "name a regular file or a folder"
		return f
	}
	return checkFile(f, path)
}

// pass names no place and no size: findings are an output, and what is equal on
// two machines has to be equal in it.
func pass(f schemas.Finding, message string) schemas.Finding {
	f.Severity, f.Message, f.File = schemas.SeverityPass, message, ""
	return f
}

func absent(f schemas.Finding, path string, err error) schemas.Finding {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.ID, f.Message, f.Remedy = "path.missing", path+" does not exist", remedyMissing(path)
	case errors.Is(err, fs.ErrPermission):
		f.ID, f.Message, f.Remedy = "path.permission", fmt.Sprintf("%s cannot be looked at: %v", path, reason(err)), "give this user the right to enter the folders above it"
	default:
		f.Severity, f.Message, f.Remedy = schemas.SeverityUnknown, fmt.Sprintf("%s cannot be looked at: %v", path, reason(err)), "check the file system it lies on"
	}
	return f
}

// remedyMissing names the first folder above that is there: most often one name
// in the middle is wrong.
func remedyMissing(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return fmt.Sprintf("correct the path (%s is there), or make it", dir)
		}
	}
}

func checkFolder(f schemas.Finding, path string) schemas.Finding {
	d, err := os.Open(path)
	if err != nil {
		return unreadable(f, path, err)
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	switch {
	case len(names) == 0 && (err == nil || errors.Is(err, io.EOF)):
		f.ID, f.Message, f.Remedy = "path.empty", path+" is an empty folder", "fill it, or name the folder that is meant"
		return f
	case err != nil:
		return unreadable(f, path, err)
	}
	return pass(f, "is a readable folder")
}

func checkFile(f schemas.Finding, path string) schemas.Finding {
	r, err := os.Open(path)
	if err != nil {
		return unreadable(f, path, err)
	}
	defer r.Close()
	if _, err := r.Read(make([]byte, 1)); err != nil && !errors.Is(err, io.EOF) {
		return unreadable(f, path, err)
	}
	return pass(f, "is a readable file")
}

func unreadable(f schemas.Finding, path string, err error) schemas.Finding {
	if errors.Is(err, fs.ErrPermission) {
		f.ID, f.Message, f.Remedy = "path.permission", path+" may not be read by this user", "give this user the right to read it"
		return f
	}
	f.Severity, f.Message, f.Remedy = schemas.SeverityUnknown, fmt.Sprintf("%s cannot be read: %v", path, reason(err)), "check the file system it lies on"
	return f
}

// reason drops the path that the message names already.
func reason(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// Program looks for a program by path, or by name in the folders of pathList, as
// the variable PATH lists them.
func Program(subject, name, pathList string) schemas.Finding {
	f := schemas.Finding{ID: "program.found", Severity: schemas.SeverityError, Subject: subject}
	if name == "" {
		f.ID, f.Message, f.Remedy = "program.missing", "no program is named", "name one"
		return f
	}
	files := []string{name}
	if !strings.Contains(name, "/") {
		files = files[:0]
		for _, dir := range filepath.SplitList(pathList) {
			if filepath.IsAbs(dir) { // what a relative one holds depends on the folder one stands in
				files = append(files, filepath.Join(dir, name))
			}
		}
	}
	denied := ""
	for _, file := range files {
		fi, err := os.Stat(file)
		switch {
		case err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0:
			return pass(f, "is installed")
		case err == nil, errors.Is(err, fs.ErrPermission):
			denied = file
		}
	}
	if denied != "" {
		f.ID, f.Message, f.Remedy = "program.permission", denied+" is not a program that this user may execute", "make it executable, or name another"
		return f
	}
	f.ID, f.Message, f.Remedy = "program.missing", fmt.Sprintf("program %s cannot be found", name), "install it, or name it by its path"
	return f
}
