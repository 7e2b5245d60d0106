package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"

	"assay/schemas"
)

// maxOfOne bounds how many findings there are of one ID: what is wrong with five
// shards is wrong with two hundred.
const maxOfOne = 5

// findings gathers what is said of one checkpoint.
type findings struct {
	subject string
	list    []schemas.Finding
	count   map[string]int
	worse   map[string]int // index of the finding that counts the rest
}

func newFindings(subject string) *findings {
	return &findings{subject: subject, count: map[string]int{}, worse: map[string]int{}}
}

// add says what the catalog calls an ID's worst.
func (f *findings) add(id, format string, args ...any) {
	f.at(entryOf(id).Severity, id, format, args...)
}

func (f *findings) at(severity schemas.Severity, id, format string, args ...any) {
	switch n := f.count[id]; {
	case n < maxOfOne:
		f.list = append(f.list, one(f.subject, severity, id, fmt.Sprintf(format, args...)))
	case n == maxOfOne:
		f.worse[id] = len(f.list)
		f.list = append(f.list, one(f.subject, severity, id, ""))
		fallthrough
	default:
		f.list[f.worse[id]].Message = fmt.Sprintf("the same of %d more", n-maxOfOne+1)
	}
	f.count[id]++
}

func one(subject string, severity schemas.Severity, id, message string) schemas.Finding {
	out := schemas.Finding{ID: id, Severity: severity, Subject: subject, Message: message}
	if severity != schemas.SeverityPass {
		out.Remedy = entryOf(id).Remedy
	}
	return out
}

// failed says what an error of reading a file means.
func (f *findings) failed(name string, err error) {
	var format *FormatError
	if errors.As(err, &format) {
		f.add(format.ID, "%s: %s", name, format.What)
		return
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err // the path is this machine's
	}
	f.add(idUnreadable, "%s cannot be read: %v", name, err)
}

// Unreadable says that a checkpoint could not be looked at at all.
func Unreadable(subject string, err error) schemas.Finding {
	f := newFindings(subject)
	f.failed("the checkpoint", err)
	return f.list[0]
}

// refuses says whether anything stands against the checkpoint.
func (f *findings) refuses() bool {
	for _, one := range f.list {
		if one.Severity == schemas.SeverityError || one.Severity == schemas.SeverityUnknown {
			return true
		}
	}
	return false
}
