package paths

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	const (
		named  = "whatever an experiment names exists and can be read before anything is spent"
		needed = "a program that is started is installed where it is looked for"
	)
	entry := func(id, subject, checks, remedy, rule string) preflight.Entry {
		return preflight.Entry{ID: id, Subject: subject, Severity: schemas.SeverityError, Checks: checks, Remedy: remedy, When: preflight.Before, Rule: rule}
	}
	missing := entry("path.missing", "path", "the path is there", "correct the path, or make it", named)
	missing.Pitfalls = []int{30}
	readable := entry("path.readable", "path", "the file or folder can be read; unknown where its file system does not answer", "check the file system it lies on", named)
	readable.Severity = schemas.SeverityUnknown
	found := entry("program.found", "program", "the program is installed", "", needed)
	found.Severity = schemas.SeverityPass
	return []preflight.Entry{
		readable, missing,
		entry("path.dangling", "path", "a symbolic link leads somewhere", "make the link point at what is meant, or give that path itself", named),
		entry("path.permission", "path", "this user may read it", "give this user the right to read it", named),
		entry("path.kind", "path", "it is a regular file or a folder", "name a regular file or a folder", named),
		entry("path.empty", "path", "a folder is not empty", "fill it, or name the folder that is meant", named),
		found,
		entry("program.missing", "program", "a program of that name is in PATH, or at that path", "install it, or name it by its path", needed),
		entry("program.permission", "program", "this user may execute it", "make it executable, or name another", needed),
	}
}
