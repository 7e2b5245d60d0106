package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"assay/internal/durable"
)

// tarSource is a layout in an uncompressed tar, read where it lies.
type tarSource struct {
	path  string
	files map[string]tarMember
}

type tarMember struct{ offset, size int64 }

func openTar(path string) (*tarSource, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := &tarSource{path: path, files: map[string]tarMember{}}
	err = walkLayoutTar(f, func(h *tar.Header, _ io.Reader) error {
		// The tar reader takes whole headers from the file and seeks over content,
		// so the file's position is where this member's bytes begin.
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		s.files[h.Name] = tarMember{at, h.Size}
		return nil
	})
	if errors.Is(err, io.ErrUnexpectedEOF) && len(s.files) > 0 {
		err = nil // it was cut: what is missing or short is found by its digest
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no tar of an OCI layout (a compressed one must be decompressed first): %w", path, err)
	}
	if _, ok := s.files["oci-layout"]; !ok {
		s.stripFolder()
	}
	if _, ok := s.files["oci-layout"]; !ok {
		return nil, fmt.Errorf("%s is no tar of an OCI layout: it has no oci-layout", path)
	}
	return s, nil
}

// stripFolder takes the one folder off that `tar -cf s.tar DIR` puts everything
// into; members in several are left as they are.
func (s *tarSource) stripFolder() {
	folder, stripped := "", map[string]tarMember{}
	for name, m := range s.files {
		first, rest, below := strings.Cut(name, "/")
		if folder == "" {
			folder = first
		}
		if first != folder {
			return
		}
		if below {
			stripped[rest] = m
		}
	}
	s.files = stripped
}

func (s *tarSource) open(name string) (io.ReadCloser, int64, error) {
	m, ok := s.files[name]
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: s.path + ":" + name, Err: fs.ErrNotExist}
	}
	f, err := durable.OpenRegular(s.path)
	if err != nil {
		return nil, 0, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, m.offset, m.size), f}, m.size, nil
}
