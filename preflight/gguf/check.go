package gguf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"assay/schemas"
)

// maxFindings bounds what one file can say.
const maxFindings = 20

// Is says whether a path is to be checked by this package, by its name.
func Is(path string) bool { return strings.HasSuffix(strings.ToLower(path), ".gguf") }

// Check looks at the checkpoint at path. Exactly one finding says that the whole
// is in order; else each says what is not.
func Check(subject, path string) []schemas.Finding {
	f, err := os.Open(path)
	if err != nil {
		return []schemas.Finding{unreadable(subject, err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return []schemas.Finding{unreadable(subject, err)}
	}
	return check(subject, filepath.Base(path), f, info.Size())
}

func check(subject, name string, r io.Reader, size int64) []schemas.Finding {
	h, err := Read(r)
	var format *FormatError
	if errors.As(err, &format) {
		return []schemas.Finding{finding(format.ID, subject, format.Error(), remedyOf(format.ID))}
	}
	if err != nil {
		return []schemas.Finding{unreadable(subject, err)}
	}
	out := append(h.bounds(subject, uint64(size)), h.named(subject, name)...)
	no, _, split := h.split()
	if _, ok := h.Texts["general.architecture"]; !ok && !(split && no > 0) { // the first of a set describes the model
		out = append(out, finding("gguf.architecture", subject, "the header has no text general.architecture, without which no engine loads it", "convert the checkpoint again"))
	}
	if len(h.Tensors) == 0 && !split { // the first of a set may leave them all to the others
		out = append(out, finding("gguf.empty", subject, "the file holds no tensor", "name the file of the weights"))
	}
	for _, f := range out {
		if f.Severity == schemas.SeverityError {
			return out
		}
	}
	return append(out, schemas.Finding{ID: "gguf.header", Severity: schemas.SeverityPass, Subject: subject, Message: h.String()})
}

// String tells what the header describes, with nothing of the machine in it.
func (h Header) String() string {
	types := map[string]int{}
	for _, t := range h.Tensors {
		types[TypeName(t.Type)]++
	}
	var parts []string
	for name, n := range types {
		parts = append(parts, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(parts)
	what := fmt.Sprintf("architecture %q", h.Texts["general.architecture"])
	if no, count, split := h.split(); split {
		what = fmt.Sprintf("file %s of %s, %s", schemas.Decimal(no+1), schemas.Decimal(count), what)
	}
	return fmt.Sprintf("GGUF version %d, %s, %d keys, %d tensors (%s), all inside the file", h.Version, what, h.Keys, len(h.Tensors), strings.Join(parts, ", "))
}

// bounds checks where the tensors lie.
func (h Header) bounds(subject string, size uint64) []schemas.Finding {
	var out []schemas.Finding
	add := func(id, format string, args ...any) {
		if len(out) < maxFindings {
			out = append(out, finding(id, subject, fmt.Sprintf(format, args...), remedyOf(id)))
		}
	}
	order := slices.Clone(h.Tensors)
	slices.SortStableFunc(order, func(a, b Tensor) int {
		switch {
		case a.Offset < b.Offset:
			return -1
		case a.Offset > b.Offset:
			return 1
		}
		return 0
	})
	var end uint64
	last := ""
	for _, t := range order {
		n, known, ok := t.size()
		switch {
		case !known:
			f := finding("gguf.tensor-type", subject, fmt.Sprintf("tensor %q has type %d, which is not known here: its size cannot be checked", t.Name, t.Type), "")
			f.Severity = schemas.SeverityWarning
			if len(out) < maxFindings {
				out = append(out, f)
			}
		case !ok:
			add("gguf.tensor", "tensor %q of shape %v is not a whole number of %s blocks", t.Name, t.Dims, TypeName(t.Type))
			continue
		}
		switch {
		case t.Offset%h.Alignment != 0:
			add("gguf.tensor-alignment", "tensor %q begins at offset %d, which is no multiple of %d", t.Name, t.Offset, h.Alignment)
		case h.DataStart > size || t.Offset > size-h.DataStart || n > size-h.DataStart-t.Offset:
			add("gguf.tensor-bounds", "tensor %q takes %d bytes from offset %d of the data at byte %d, but the file ends at byte %d", t.Name, n, t.Offset, h.DataStart, size)
		case t.Offset < end:
			add("gguf.tensor-overlap", "tensor %q begins at offset %d, inside tensor %q, which ends at %d", t.Name, t.Offset, last, end)
		}
		if e := t.Offset + n; e > end && e >= t.Offset {
			end, last = e, t.Name
		}
	}
	return out
}

func finding(id, subject, message, remedy string) schemas.Finding {
	return schemas.Finding{ID: id, Severity: schemas.SeverityError, Subject: subject, Message: message, Remedy: remedy}
}

func unreadable(subject string, err error) schemas.Finding {
	var pe *os.PathError
	if errors.As(err, &pe) {
		err = pe.Err // the path is this machine's
	}
	return schemas.Finding{ID: "gguf.header", Severity: schemas.SeverityUnknown, Subject: subject, Message: "cannot be read: " + err.Error(), Remedy: "check the file system it lies on"}
}

func remedyOf(id string) string {
	switch id {
	case "gguf.magic":
		return "name a GGUF file; a small text file here is often a pointer whose content was never fetched"
	case "gguf.version", "gguf.byte-order", "gguf.value-type", "gguf.limit":
		return "convert the checkpoint again with a current converter"
	case "gguf.split-missing":
		return "fetch the files that are missing, or name a file that is whole by itself"
	case "gguf.split-name":
		return "give the file the name that it was published under"
	case "gguf.truncated", "gguf.tensor-bounds":
		return "fetch the file again: it is incomplete"
	}
	return "fetch or convert the checkpoint again: its header is damaged"
}
