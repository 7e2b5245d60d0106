package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"assay/schemas"
)

const latest = "latest"

// ErrRegistry is wrapped by a reference to a registry.
var ErrRegistry = errors.New("a store does not reach registries: `assay pull` fetches the run")

// Ref is a resolved reference: which run, and where it lies. The digest pins it:
// a tag that moves later changes nothing.
type Ref struct {
	Name   string         `json:"reference"` // as given
	Digest schemas.Digest `json:"digest"`
	// Place is the folder or tar the run lies in; "" for the store itself.
	Place string `json:"place,omitempty"`
	// Folder is set when the run is extracted: its files lie there as they are.
	Folder string `json:"folder,omitempty"`

	layout *Layout
}

// Layout is where the run lies; nil for an extracted one.
func (r Ref) Layout() *Layout { return r.layout }

// Run reads the run.
func (r Ref) Run(ctx context.Context) (*Run, error) {
	if r.Folder != "" {
		return openFolderRun(r.Folder)
	}
	if r.layout == nil {
		return nil, fmt.Errorf("reference %q was not resolved", r.Name)
	}
	return r.layout.Run(ctx, r.Digest)
}

// Resolve finds the run that a reference names: a full digest, a unique prefix
// of one (sha256:abcd, or four hex digits and more), a tag, latest,
// latest:EXPERIMENT, or a path to another OCI layout (with :TAG, if wanted), to a
// tar of one, or to an extracted run. An error for what is not found wraps
// fs.ErrNotExist and names the nearest tags.
func (s *Store) Resolve(ctx context.Context, ref string) (Ref, error) {
	switch {
	case ref == "":
		return Ref{}, errors.New("reference is empty: name a digest, a tag, latest, or a path")
	case strings.HasPrefix(ref, "oci://"):
		return Ref{}, fmt.Errorf("reference %q: %w", ref, ErrRegistry)
	case looksLikePath(ref):
		return ResolvePath(ctx, ref)
	}
	runs, err := s.Runs(ctx)
	if d := schemas.Digest(ref); errors.Is(err, ErrIndex) && d.Valid() {
		// A damaged index must not keep anyone from verifying a run.
		return Ref{Name: ref, Digest: d, layout: s.Layout}, nil
	}
	if err != nil {
		return Ref{}, fmt.Errorf("reference %q: %w", ref, err)
	}
	d, err := pick(runs, ref)
	if err == nil {
		return Ref{Name: ref, Digest: d, layout: s.Layout}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Ref{}, fmt.Errorf("reference %q: %w", ref, err)
	}
	if IsPath(ref) {
		return ResolvePath(ctx, ref)
	}
	return Ref{}, fmt.Errorf("reference %q in %s: %w%s", ref, s.dir, err, nearest(runs, ref))
}

// IsPath says whether a reference that names nothing in the store is a path: it
// begins as one, something lies there, or it ends as archives do.
func IsPath(ref string) bool {
	if looksLikePath(ref) {
		return true
	}
	place := pathPart(ref)
	for _, suffix := range []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".zip"} {
		if strings.HasSuffix(place, suffix) {
			return true
		}
	}
	_, err := os.Lstat(place)
	return err == nil
}

func looksLikePath(ref string) bool {
	return strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "./") || strings.HasPrefix(ref, "../") || ref == "." || ref == ".."
}

// pathPart cuts ":TAG" or ":sha256:HEX" off, unless the whole is the name of something.
func pathPart(ref string) string {
	if _, err := os.Lstat(ref); err == nil {
		return ref
	}
	i := strings.LastIndexByte(ref, ':')
	if i <= 0 || strings.Contains(ref[i:], "/") {
		return ref
	}
	if place, ok := strings.CutSuffix(ref[:i], ":sha256"); ok && place != "" {
		if _, err := os.Lstat(ref[:i]); err != nil {
			return place
		}
	}
	return ref[:i]
}

// ResolvePath resolves a reference that is a path. It needs no store.
func ResolvePath(ctx context.Context, ref string) (Ref, error) {
	place := pathPart(ref)
	tag := strings.TrimPrefix(strings.TrimPrefix(ref, place), ":")
	info, err := os.Stat(place)
	if err != nil {
		return Ref{}, fmt.Errorf("reference %q: %w", ref, err)
	}
	if info.IsDir() && isFile(filepath.Join(place, nameManifest)) && tag == "" {
		b, err := readLimited(filepath.Join(place, nameManifest), maxManifestBytes)
		if err != nil {
			return Ref{}, fmt.Errorf("reference %q: %w", ref, err)
		}
		return Ref{Name: ref, Digest: schemas.DigestOf(b), Place: place, Folder: place}, nil
	}
	l, err := OpenLayout(place)
	if err != nil {
		return Ref{}, fmt.Errorf("reference %q: %w", ref, err)
	}
	runs, err := l.Runs(ctx)
	if err != nil {
		return Ref{}, fmt.Errorf("reference %q: %w", ref, err)
	}
	if tag == "" {
		tag = latest
	}
	d, err := pick(runs, tag)
	if err != nil {
		return Ref{}, fmt.Errorf("reference %q: %s in %s: %w%s", ref, tag, place, err, nearest(runs, tag))
	}
	return Ref{Name: ref, Digest: d, Place: place, layout: l}, nil
}

func isFile(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.Mode().IsRegular()
}

// OpenLayout opens an OCI image layout in a folder or a tar for reading. Runs in
// it that are wrapped as images are seen as they were before.
func OpenLayout(place string) (*Layout, error) {
	info, err := os.Stat(place)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		src, err := openTar(place)
		if err != nil {
			return nil, err
		}
		return &Layout{src: unwrap(src), name: place}, nil
	}
	if !isFile(filepath.Join(place, "oci-layout")) {
		return nil, fmt.Errorf("%s is neither an OCI layout (no oci-layout) nor an extracted run (no %s)", place, nameManifest)
	}
	return &Layout{src: unwrap(folderSource{place}), name: place}, nil
}

// pick finds a run among those of one layout. A tag goes before a prefix that
// happens to be spelled alike.
func pick(runs []RunInfo, ref string) (schemas.Digest, error) {
	for _, r := range runs {
		if string(r.Digest) == ref || "sha256:"+ref == string(r.Digest) {
			return r.Digest, nil
		}
		for _, t := range r.Tags {
			if t == ref {
				return r.Digest, nil
			}
		}
	}
	if ref == latest || strings.HasPrefix(ref, latest+":") {
		want, named := strings.CutPrefix(ref, latest+":")
		for i := len(runs) - 1; i >= 0; i-- {
			if !named || runs[i].Experiment == want {
				return runs[i].Digest, nil
			}
		}
		if named {
			return "", fmt.Errorf("no run of experiment %q: %w", want, fs.ErrNotExist)
		}
		return "", fmt.Errorf("no sealed run: %w", fs.ErrNotExist)
	}
	return pickPrefix(runs, ref)
}

func pickPrefix(runs []RunInfo, ref string) (schemas.Digest, error) {
	hex := strings.TrimPrefix(ref, "sha256:")
	if strings.Trim(hex, "0123456789abcdef") != "" {
		return "", fs.ErrNotExist
	}
	if len(hex) < minPrefix {
		return "", fmt.Errorf("%w (a prefix of a digest needs %d digits or more)", fs.ErrNotExist, minPrefix)
	}
	var found []schemas.Digest
	for _, r := range runs {
		if strings.HasPrefix(r.Digest.Hex(), hex) {
			found = append(found, r.Digest)
		}
	}
	switch len(found) {
	case 0:
		return "", fs.ErrNotExist
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%d runs begin with it (%s, %s, ...): write more digits", len(found), found[0].Short(), found[1].Short())
}

// nearest names up to three tags that are spelled most like ref.
func nearest(runs []RunInfo, ref string) string {
	var tags []string
	for _, r := range runs {
		tags = append(tags, r.Tags...)
	}
	sort.Strings(tags)
	sort.SliceStable(tags, func(i, j int) bool { return distance(ref, tags[i]) < distance(ref, tags[j]) })
	switch {
	case len(tags) == 0 && len(runs) == 0:
		return " (there is no run here)"
	case len(tags) == 0:
		return " (there are no tags: `assay ls` lists the runs)"
	}
	return " (nearest tags: " + strings.Join(tags[:min(3, len(tags))], ", ") + ")"
}

// distance is the number of single-letter edits between two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diag
			if a[i-1] != b[j-1] {
				cost++
			}
			diag = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
