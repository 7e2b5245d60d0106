package archive

import (
	"errors"
	"fmt"
	"io/fs"

	"assay/schemas"
)

// CorruptError says that stored bytes are not what their digest promises.
type CorruptError struct {
	Blob schemas.Digest // the blob that is wrong
	Path string         // the path whose content no longer matches, where known
	Err  error
}

func (e *CorruptError) Error() string {
	what, at := "blob "+string(e.Blob), ""
	switch {
	case e.Blob == "":
		what = "file " + e.Path
	case e.Path != "":
		at = " at " + e.Path
	}
	if errors.Is(e.Err, fs.ErrNotExist) {
		text := what + " is missing" + at
		if do := remedyOf(e.Err); do != "" {
			text += ": " + do
		}
		return text
	}
	return fmt.Sprintf("%s is corrupt%s: %v", what, at, e.Err)
}

// remedyOf is what an error knows to do about itself, "" for nothing.
func remedyOf(err error) string {
	var known interface{ Remedy() string }
	if errors.As(err, &known) {
		return known.Remedy()
	}
	return ""
}

func (e *CorruptError) Unwrap() error { return e.Err }
