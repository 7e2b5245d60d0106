package archive

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"assay/schemas"
)

// checkLinks makes sure that no symbolic link of a tree leads outside of it,
// neither as written nor through other links of the tree. A target that does not
// exist is allowed.
func checkLinks(entries []schemas.TreeEntry) error {
	links := map[string]string{}
	for _, e := range entries {
		if e.Kind == schemas.EntrySymlink {
			links[e.Path] = e.Target
		}
	}
	for _, e := range entries {
		if e.Kind != schemas.EntrySymlink {
			continue
		}
		if err := followLink(links, e.Path, e.Target); err != nil {
			return fmt.Errorf("symbolic link %s to %q: %w", e.Path, e.Target, err)
		}
	}
	return nil
}

// followLink walks the target component by component, as the kernel would.
func followLink(links map[string]string, name, target string) error {
	if target == "" || strings.ContainsRune(target, 0) || len(target) > maxPathBytes {
		return errors.New("the target is empty, too long or holds a zero byte")
	}
	if path.IsAbs(target) {
		return errors.New("the target is absolute: make it relative")
	}
	at := strings.Split(path.Dir(name), "/")
	if at[0] == "." {
		at = nil
	}
	parts := strings.Split(target, "/")
	for depth := 0; len(parts) > 0; {
		part := parts[0]
		parts = parts[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return errors.New("the target is outside of the folder")
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(at[:len(at):len(at)], part)
		next, isLink := links[strings.Join(at, "/")]
		if !isLink {
			continue
		}
		if depth++; depth > maxLinkDepth {
			return nil // a loop: leads nowhere, so not outside
		}
		if path.IsAbs(next) {
			return errors.New("leads through a link with an absolute target")
		}
		at = at[:len(at)-1]
		parts = append(strings.Split(next, "/"), parts...)
	}
	return nil
}
