package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"strconv"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/schemas"
)

// Verdicts of Verify.
const (
	Valid   = "valid"   // every byte is what the run's digest promises
	Invalid = "invalid" // something is not
	Unknown = "unknown" // something could not be read
)

// Verdict is what Verify found. Findings name the blob, and, as far as known,
// the stage, the trial and the path of each fault; there are none in a valid run
// but warnings.
type Verdict struct {
	Digest   schemas.Digest    `json:"digest"`
	Verdict  string            `json:"verdict"`
	Findings []schemas.Finding `json:"findings"`
	Blobs    int               `json:"blobs"` // checked
	Files    int               `json:"files"`
	Bytes    int64             `json:"bytes"` // of blobs read
}

// verifier gathers findings about one run. It never writes to what it reads.
type verifier struct {
	place  string
	digest schemas.Digest
	// doc reads a document; layer is nil for one that only the config names.
	doc func(d schemas.Digest, title string) ([]byte, error)
	// openDoc opens a document that may be long; its last Read fails when the bytes
	// are not those of the digest.
	openDoc func(d schemas.Digest, title string) (io.ReadCloser, error)
	// open reads a file of the run; its last Read fails when the bytes are not
	// what the entry says.
	open func(e schemas.TreeEntry) (io.ReadCloser, error)

	manifest v1.Manifest
	config   *schemas.Run
	report   *schemas.Report
	files    *schemas.Tree
	bad      map[schemas.Digest]bool // documents already found faulty

	mu       sync.Mutex
	findings []schemas.Finding
	blobs    int
	bytes    int64
}

// Verify checks a resolved run: sizes and digests of all blobs, documents
// against their schemas, the file list against the trees, trees and files
// against their digests, keys against their preimages, and documents against each
// other.
func (r Ref) Verify(ctx context.Context) (Verdict, error) {
	v := &verifier{digest: r.Digest, bad: map[schemas.Digest]bool{}}
	var err error
	switch {
	case r.Folder != "":
		err = v.folder(ctx, r.Folder)
	case r.layout != nil:
		err = v.layout(ctx, r.layout)
	default:
		err = fmt.Errorf("reference %q was not resolved", r.Name)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("verify %s: %w", r.Digest.Short(), err)
	}
	return v.verdict(), nil
}

// Verify checks a run of this layout by its digest.
func (l *Layout) Verify(ctx context.Context, digest schemas.Digest) (Verdict, error) {
	return Ref{Name: string(digest), Digest: digest, layout: l}.Verify(ctx)
}

func (v *verifier) verdict() Verdict {
	sort.SliceStable(v.findings, func(i, j int) bool {
		a, b := v.findings[i], v.findings[j]
		if a.ID != b.ID {
			return a.ID < b.ID
		}
		return a.Path+string(a.Blob) < b.Path+string(b.Blob)
	})
	out := Verdict{Digest: v.digest, Verdict: Valid, Findings: v.findings, Blobs: v.blobs, Bytes: v.bytes}
	if out.Findings == nil {
		out.Findings = []schemas.Finding{}
	}
	for _, f := range v.findings {
		switch {
		case f.Severity == schemas.SeverityError:
			out.Verdict = Invalid
		case f.Severity == schemas.SeverityUnknown && out.Verdict == Valid:
			out.Verdict = Unknown
		}
	}
	if v.files != nil {
		out.Files, _ = schemas.SumEntries(v.files.Entries)
	}
	return out
}

func (v *verifier) add(f schemas.Finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.Severity == "" {
		f.Severity = schemas.SeverityError
	}
	f.Run = string(v.digest)
	v.findings = append(v.findings, f)
}

func (v *verifier) count(bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.blobs++
	v.bytes += bytes
}

// layout verifies a run that lies in blobs.
func (v *verifier) layout(ctx context.Context, l *Layout) error {
	v.place = l.name
	raw, err := l.readBlob(v.digest, maxManifestBytes)
	if !v.head(raw, err) {
		return ctx.Err()
	}
	defer boundMemory(v.large())()
	v.checkIndex(l, int64(len(raw)))
	docs := l.documentsOf(v.manifest)
	v.doc = func(d schemas.Digest, _ string) ([]byte, error) { return docs.read(d) }
	v.openDoc = func(d schemas.Digest, _ string) (io.ReadCloser, error) { return docs.open(d) }
	blobs := sync.OnceValue(func() map[schemas.Digest]schemas.Blob { return blobMap(v.files.Blobs) })
	v.open = func(e schemas.TreeEntry) (io.ReadCloser, error) { return l.openEntry(ctx, e, blobs()), nil }
	v.documents()
	if err := ctx.Err(); err != nil {
		return err
	}
	return v.content(ctx, l)
}

// large says whether the run has many files.
func (v *verifier) large() bool {
	return layersOf(v.manifest, MediaFiles)[0].Size > longTreeDoc
}

// head takes the manifest's bytes. Without a sound manifest there is nothing
// else to check.
func (v *verifier) head(raw []byte, err error) bool {
	if err == nil {
		v.count(int64(len(raw)))
		v.manifest, err = parseManifest(raw)
	}
	if err != nil {
		v.fault(err, schemas.Finding{ID: "archive.manifest", Subject: "manifest", Blob: v.digest, Path: nameManifest})
	}
	return err == nil
}

// fault adds a finding for an error, and calls it unknown when the file system
// refused to read.
func (v *verifier) fault(err error, f schemas.Finding) {
	f.Message = err.Error()
	var corrupt *CorruptError
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.Remedy = remedyOf(err); f.Remedy == "" {
			f.Remedy = "the file is missing: restore it from another copy of the run"
		}
	case errors.Is(err, ErrUnreachable):
		f.Severity, f.Remedy = schemas.SeverityUnknown, "verify again when it can be reached"
	case errors.As(err, &pathErr) && !errors.As(err, &corrupt):
		f.Severity = schemas.SeverityUnknown
		f.Remedy = "make the file readable and verify again"
	default:
		f.Remedy = "restore it from another copy of the run"
	}
	v.add(f)
}

// checkIndex compares what index.json says of the run with the manifest.
func (v *verifier) checkIndex(l *Layout, size int64) {
	x, err := l.readIndex()
	if err != nil {
		v.fault(err, schemas.Finding{ID: "archive.index", Subject: indexName, Path: indexName})
		return
	}
	for _, d := range x.Manifests {
		if digestOf(d) != v.digest {
			continue
		}
		bad := d.Size != size || d.ArtifactType != ArtifactType || string(d.MediaType) != mediaManifest
		for k, want := range v.manifest.Annotations {
			bad = bad || d.Annotations[k] != want
		}
		if bad {
			v.add(schemas.Finding{ID: "archive.index", Subject: indexName, Path: indexName, Blob: v.digest,
				Message: "index.json says something else of the run than its manifest (size, type or annotations)"})
			return
		}
	}
}

// owner is the stage or service whose tree holds a path of the file list.
func (v *verifier) owner(p string) (stage, trial string) {
	if v.config == nil {
		return "", ""
	}
	for _, r := range v.config.Records {
		if r.Path != "" && within(p, r.Path) {
			return r.Record.Stage, r.Record.Trial
		}
	}
	for _, s := range v.config.Services {
		if s.Path != "" && within(p, s.Path) {
			return "service " + s.Service, ""
		}
	}
	return "", ""
}

func within(p, dir string) bool {
	return p == dir || (len(p) > len(dir) && p[:len(dir)] == dir && p[len(dir)] == '/')
}

// docOwner is the stage that a document belongs to, and where its tree stands.
func (v *verifier) docOwner(d schemas.Digest) (stage, trial string) {
	if v.config == nil {
		return "", ""
	}
	for _, r := range v.config.Records {
		if r.Digest == d || r.Record.Tree == d || r.Record.Key.Preimage() == d {
			return r.Record.Stage, r.Record.Trial
		}
	}
	for _, s := range v.config.Services {
		if s.Tree == d {
			return "service " + s.Service, ""
		}
	}
	return "", ""
}

// checkAnnotations compares the manifest's annotations with the config.
func (v *verifier) checkAnnotations() {
	for k, want := range runAnnotations(*v.config) {
		if got := v.manifest.Annotations[k]; got != want {
			v.add(schemas.Finding{ID: "archive.manifest", Subject: "manifest", Blob: v.digest, Path: nameManifest,
				Message: "annotation " + k + " is " + strconv.Quote(got) + ", the config says " + strconv.Quote(want)})
		}
	}
}
