package archive

import (
	"fmt"

	"assay/schemas"
)

// CorruptError says that stored bytes are not what their digest promises.
type CorruptError struct {
	Blob schemas.Digest // the blob that is wrong
	Path string         // the path whose content no longer matches, where known
	Err  error
}

func (e *CorruptError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("blob %s is corrupt: %v", e.Blob, e.Err)
	}
	return fmt.Sprintf("blob %s is corrupt at %s: %v", e.Blob, e.Path, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }
