package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"assay/schemas"
)

// MaxFiles bounds what a folder may hold at its root.
const MaxFiles = 10_000

// Source is a checkpoint as it is looked at.
type Source struct {
	// FS is the folder; links are followed.
	FS fs.FS
	// Blobs is where the files of a model cache lie that the folder's links lead to,
	// nil for a folder that is not in one.
	Blobs fs.FS
}

// Open makes the source of a folder. One that is a revision in a model cache, or a
// link to one, is looked at together with the cache's blobs.
func Open(dir string) (Source, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Source{}, fmt.Errorf("open checkpoint: %w", err)
	}
	src := Source{FS: os.DirFS(real)}
	if up := filepath.Dir(real); filepath.Base(up) == "snapshots" {
		src.Blobs = os.DirFS(filepath.Join(filepath.Dir(up), "blobs"))
	}
	return src, nil
}

// Result is what there is to say of a checkpoint.
type Result struct {
	Findings []schemas.Finding
	Facts    Facts
}

// folder is a checkpoint while it is looked at.
type folder struct {
	*findings
	src    Source
	files  map[string]file
	facts  Facts
	config map[string]any // nil: not there, or not readable
	// read counts the bytes of headers, tensors their entries.
	read, tensors atomic.Int64
}

type file struct {
	size     int64
	modified time.Time
	bad      bool // said to be so already
}

// Check looks at a folder. One finding says that nothing stands against it; else
// each says what does. Warnings stand beside both.
func Check(ctx context.Context, subject string, src Source) Result {
	f := &folder{findings: newFindings(subject), src: src, files: map[string]file{}}
	if f.listFiles() {
		f.leftovers()
		f.contents()
		f.readConfig()
		f.readTokenizer()
		f.readWeights(ctx)
		f.readPrepacked()
	}
	if !f.refuses() {
		f.list = append(f.list, one(subject, schemas.SeverityPass, idWhole, f.facts.String()))
	}
	return Result{Findings: f.list, Facts: f.facts}
}

// String tells what the checkpoint is, with nothing of the machine in it.
func (f Facts) String() string {
	var types []string
	for _, t := range slices.Sorted(maps.Keys(f.Dtypes)) {
		types = append(types, fmt.Sprintf("%d %s", f.Dtypes[t], t))
	}
	return fmt.Sprintf("architecture %q, %d parameters (%s) in %d files of weights, all inside their files", f.Architecture, f.Parameters, strings.Join(types, ", "), f.Files)
}

// listFiles takes stock of the folder's root; false when there is nothing to go on
// with.
func (f *folder) listFiles() bool {
	entries, err := readDir(f.src.FS, ".", MaxFiles+1)
	if err != nil {
		f.failed("the folder", err)
		return false
	}
	if len(entries) > MaxFiles {
		f.add(idLimit, "the folder holds more than %d files", MaxFiles)
		return false
	}
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name()] = true
		info, err := fs.Stat(f.src.FS, e.Name())
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist) && e.Type()&fs.ModeSymlink != 0:
			f.add(idDangling, "%s is a link to a file that is not there", quoted(e.Name()))
			f.files[e.Name()] = file{bad: true}
		case err != nil:
			f.failed(e.Name(), err)
		case info.Mode().IsRegular():
			f.files[e.Name()] = file{size: info.Size(), modified: info.ModTime()}
		}
	}
	if names["snapshots"] && names["blobs"] {
		f.add(idFolder, "the folder is that of a model in a cache, with all its revisions")
		return false
	}
	return true
}

// readDir reads at most limit entries of a folder.
func readDir(fsys fs.FS, name string, limit int) ([]fs.DirEntry, error) {
	d, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	dir, ok := d.(fs.ReadDirFile)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("is not a folder")}
	}
	entries, err := dir.ReadDir(limit)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// partial are the endings that downloaders give to files that are not whole yet.
var partial = []string{".incomplete", ".part", ".partial", ".tmp", ".aria2", ".crdownload", ".download"}

// leftovers finds downloads that have not ended: in the folder, in what the hub's
// programs keep inside it, and in the cache that it is a revision of.
func (f *folder) leftovers() {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		final, unfinished := withoutEnding(name)
		if !unfinished {
			continue
		}
		_, there := f.files[final]
		switch {
		case there:
			f.at(schemas.SeverityWarning, idIncomplete, "%s is left of a download; %s is there nevertheless", quoted(name), quoted(final))
		case slices.Contains(weighty, filepath.Ext(final)):
			f.add(idIncomplete, "%s is a download that has not ended, and %s is not there", quoted(name), quoted(final))
		default: // what is needed is found to be missing by itself
			f.at(schemas.SeverityWarning, idIncomplete, "%s may be a download that has not ended", quoted(name))
		}
	}
	for _, dir := range []string{".cache/huggingface/download", "._____temp"} {
		f.hidden(f.src.FS, dir, "below "+dir+" of the folder", dir == "._____temp")
	}
	if f.src.Blobs != nil {
		f.hidden(f.src.Blobs, ".", "among the cache's blobs", false)
	}
}

// hidden warns of unfinished downloads where they have other names than the files
// will: which of the files they are cannot be told, and what is missing is found
// by itself.
func (f *folder) hidden(fsys fs.FS, dir, where string, all bool) {
	entries, err := readDir(fsys, dir, MaxFiles)
	if err != nil {
		return // most folders have none
	}
	n := 0
	for _, e := range entries {
		if _, unfinished := withoutEnding(e.Name()); unfinished || all {
			n++
		}
	}
	if n > 0 {
		f.at(schemas.SeverityWarning, idIncomplete, "%d downloads that have not ended lie %s", n, where)
	}
}

func withoutEnding(name string) (final string, unfinished bool) {
	for _, ending := range partial {
		if cut, ok := strings.CutSuffix(name, ending); ok && cut != "" {
			return cut, true
		}
	}
	return name, false
}

// weighty are the endings of files that are never empty in a whole checkpoint.
var weighty = []string{".safetensors", ".json", ".model", ".jinja", ".bin", ".gguf", ".pt", ".pth"}

const pointerBegins = "version https://git-lfs.github.com/spec/"

// contents finds files that are there by name alone: empty ones, and pointers to a
// content elsewhere.
func (f *folder) contents() {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		one := f.files[name]
		switch {
		case one.bad:
		case one.size == 0 && slices.Contains(weighty, filepath.Ext(name)):
			f.add(idEmpty, "%s has no content", quoted(name))
			one.bad = true
		case one.size > 0 && one.size < 1024:
			b, err := f.readFile(name, 1024)
			if err != nil {
				f.failed(name, err)
				one.bad = true
			} else if strings.HasPrefix(string(b), pointerBegins) {
				f.add(idPointer, "%s is a pointer to the file, not the file", quoted(name))
				one.bad = true
			}
		}
		f.files[name] = one
	}
}

// readFile reads a file of the root, which may have limit bytes.
func (f *folder) readFile(name string, limit int64) ([]byte, error) {
	r, err := f.src.FS.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, wrong(idLimit, "has more than %d bytes", limit)
	}
	return b, err
}
