package gguf

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"assay/schemas"
)

// splitName is how one file of several is named; engines find the others by it.
var splitName = regexp.MustCompile(`^(.+)-([0-9]{5})-of-([0-9]{5})\.gguf$`)

// maxFiles bounds how many files of a folder are looked at.
const maxFiles = 2000

// Files lists the GGUF files that a path means: those of a folder, a file, or all
// files of the set that a file is one of.
func Files(path string) ([]string, error) {
	dir, stem := path, ""
	if info, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("list GGUF files: %w", err)
	} else if !info.IsDir() {
		m := splitName.FindStringSubmatch(filepath.Base(path))
		if m == nil {
			return []string{path}, nil
		}
		dir, stem = filepath.Dir(path), m[1]
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("list GGUF files: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list GGUF files: %w", err)
	}
	var out []string
	for _, name := range names {
		m := splitName.FindStringSubmatch(name)
		if Is(name) && (stem == "" || m != nil && m[1] == stem) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	if len(out) > maxFiles {
		return nil, fmt.Errorf("list GGUF files: there are %d, more than %d", len(out), maxFiles)
	}
	slices.Sort(out)
	return out, nil
}

// CheckPath looks at all that Files lists for a path.
func CheckPath(subject, path string) []schemas.Finding {
	files, err := Files(path)
	if err != nil {
		return []schemas.Finding{unreadable(subject, err)}
	}
	return CheckAll(subject, files)
}

// CheckAll looks at files of one folder, each by itself, and at whether sets that
// were split are all there.
func CheckAll(subject string, files []string) []schemas.Finding {
	out := sets(subject, files)
	for _, path := range files {
		out = append(out, Check(subject+" "+filepath.Base(path), path)...)
	}
	return out
}

// sets finds files that are missing from those that are named as parts of one.
func sets(subject string, files []string) []schemas.Finding {
	there := map[string]map[int]bool{} // by stem and the number of parts
	for _, path := range files {
		if m := splitName.FindStringSubmatch(filepath.Base(path)); m != nil {
			key := m[1] + "/" + m[3]
			if there[key] == nil {
				there[key] = map[int]bool{}
			}
			k, _ := strconv.Atoi(m[2]) // five digits
			there[key][k] = true
		}
	}
	var out []schemas.Finding
	for _, key := range slices.Sorted(maps.Keys(there)) {
		stem, count, _ := strings.Cut(key, "/")
		n, _ := strconv.Atoi(count)
		var missing []string
		lacking := 0
		for k := 1; k <= n; k++ {
			if there[key][k] {
				continue
			}
			if lacking++; len(missing) < 5 {
				missing = append(missing, strconv.Itoa(k))
			}
		}
		if lacking > 0 {
			out = append(out, finding("gguf.split-missing", subject, fmt.Sprintf("%d of the %d files of %q are not there, among them number %s", lacking, n, stem, strings.Join(missing, ", ")), remedyOf("gguf.split-missing")))
		}
	}
	return out
}

// split says whether the header is one of a set, and which, from 0.
func (h Header) split() (no, count float64, yes bool) {
	count = h.Numbers["split.count"]
	return h.Numbers["split.no"], count, count > 1
}

// named holds what the header says of its set against the file's name.
func (h Header) named(subject, name string) []schemas.Finding {
	no, count, split := h.split()
	m := splitName.FindStringSubmatch(name)
	switch {
	case !split && m == nil:
		return nil
	case m == nil:
		return []schemas.Finding{finding("gguf.split-name", subject, fmt.Sprintf("the file is number %s of %s, and its name does not say so: engines find the others by name", schemas.Decimal(no+1), schemas.Decimal(count)), remedyOf("gguf.split-name"))}
	}
	k, _ := strconv.Atoi(m[2])
	n, _ := strconv.Atoi(m[3])
	if !split && n == 1 || no+1 == float64(k) && count == float64(n) {
		return nil
	}
	says := fmt.Sprintf("number %s of %s", schemas.Decimal(no+1), schemas.Decimal(count))
	if !split {
		says = "whole"
	}
	return []schemas.Finding{finding("gguf.split-name", subject, fmt.Sprintf("the file is %s by its header, and number %d of %d by its name", says, k, n), remedyOf("gguf.split-name"))}
}
