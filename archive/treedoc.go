package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"assay/schemas"
)

// decodeStrict decodes one JSON document and refuses unknown fields and
// anything that follows it.
func decodeStrict(b []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the document")
	}
	return nil
}

func contentSize(b schemas.Blob) int64 {
	if b.MediaType == MediaPart {
		return b.Size
	}
	return b.ContentSize
}

func checkBlob(b schemas.Blob) error {
	if !b.Digest.Valid() || b.Size < 0 || b.ContentSize < 0 {
		return fmt.Errorf("blob %q of %d bytes is not well formed", string(b.Digest), b.Size)
	}
	limit := int64(partBytes)
	switch b.MediaType {
	case MediaPart:
		if b.ContentDigest != "" || b.ContentSize != 0 {
			return fmt.Errorf("blob %s is raw and yet has content fields", b.Digest)
		}
	case MediaPartZstd, MediaPack:
		pack := b.MediaType == MediaPack
		if !b.ContentDigest.Valid() && (!pack || b.ContentDigest != "") {
			return fmt.Errorf("blob %s has no content digest", b.Digest)
		}
		if pack {
			limit = packLimitBytes
		}
	default:
		return fmt.Errorf("blob %s has the unknown media type %q", b.Digest, b.MediaType)
	}
	if contentSize(b) > limit {
		return fmt.Errorf("blob %s has %d bytes of content, more than the limit of %d", b.Digest, contentSize(b), limit)
	}
	return nil
}

// checkPath accepts what stays inside a folder on any system we extract to.
func checkPath(p string) error {
	switch {
	case p == "" || p == "." || len(p) > maxPathBytes || !utf8.ValidString(p):
		return fmt.Errorf("path %q is empty, too long or not UTF-8", p)
	case path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return fmt.Errorf("path %q is not a clean relative path", p)
	case strings.ContainsRune(p, 0):
		return fmt.Errorf("path %q holds a zero byte", p)
	}
	return nil
}

func checkEntry(e schemas.TreeEntry, blobs map[schemas.Digest]int64) error {
	plain := e.Size == 0 && e.Digest == "" && len(e.Parts) == 0 && !e.Executable
	switch e.Kind {
	case schemas.EntryDir:
		if !plain || e.Target != "" {
			return errors.New("a folder has a path and a kind only")
		}
		return nil
	case schemas.EntrySymlink:
		if !plain || e.Target == "" {
			return errors.New("a symbolic link has a path, a kind and a target only")
		}
		return nil
	case schemas.EntryFile:
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	if e.Target != "" || !e.Digest.Valid() || e.Size < 0 || e.Size > maxTreeBytes {
		return errors.New("a file has a digest, a size and no target")
	}
	left := e.Size
	for _, p := range e.Parts {
		have, known := blobs[p.Blob]
		switch {
		case !known:
			return fmt.Errorf("part in blob %q, which the document does not list", string(p.Blob))
		case p.Offset < 0 || p.Length <= 0 || p.Length > left || p.Offset > have-p.Length:
			return fmt.Errorf("part of %d bytes at %d does not fit blob %s or the file", p.Length, p.Offset, p.Blob)
		}
		left -= p.Length
	}
	if left != 0 {
		return fmt.Errorf("parts lack %d of %d bytes", left, e.Size)
	}
	return nil
}
