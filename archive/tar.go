package archive

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
)

// walkTar reads a tar strictly: regular files with clean relative names only,
// none twice, no more than a tree may have. Folders, links, devices and sparse
// files are refused.
func walkTar(r io.Reader, each func(*tar.Header, io.Reader) error) error {
	return walkTarWith(r, false, each)
}

// walkLayoutTar is walkTar that passes over folders, since other tools write them
// into layouts. Their names must be clean too.
func walkLayoutTar(r io.Reader, each func(*tar.Header, io.Reader) error) error {
	return walkTarWith(r, true, each)
}

func walkTarWith(r io.Reader, folders bool, each func(*tar.Header, io.Reader) error) error {
	tr := tar.NewReader(r)
	seen := map[string]bool{}
	for n := 0; ; n++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("tar: %w", err)
		}
		if n >= maxEntries {
			return fmt.Errorf("tar: more than %d entries", maxEntries)
		}
		if folders && h.Typeflag == tar.TypeDir {
			if name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/"); name != "" && name != "." {
				if err := checkPath(name); err != nil {
					return fmt.Errorf("tar: %w", err)
				}
			}
			continue
		}
		h.Name = strings.TrimPrefix(h.Name, "./")
		if err := checkTarHeader(h); err != nil {
			return fmt.Errorf("tar: %w", err)
		}
		if seen[h.Name] {
			return fmt.Errorf("tar: %s is there twice", h.Name)
		}
		seen[h.Name] = true
		if err := each(h, tr); err != nil {
			return err
		}
	}
}

func checkTarHeader(h *tar.Header) error {
	if h.Typeflag != tar.TypeReg {
		return fmt.Errorf("%q is of type %q: only regular files are accepted, no folders, links or devices", h.Name, h.Typeflag)
	}
	for k := range h.PAXRecords {
		if k != "path" && k != "size" && k != "mtime" && k != "atime" && k != "ctime" && k != "uid" && k != "gid" && k != "uname" && k != "gname" {
			return fmt.Errorf("%q has the extended header %q: it is not accepted", h.Name, k)
		}
	}
	return checkPath(h.Name)
}
