package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/internal/durable"
	"assay/internal/statcache"
	"assay/schemas"
)

// storedBlob is what the file system says of a blob.
type storedBlob struct {
	digest   schemas.Digest
	size     int64
	modified time.Time
	stamp    statcache.Stamp
	what     string // what is there instead of a file; "" for a file
}

// odd is the finding about something that stands in a blob's place.
func (b storedBlob) odd() schemas.Finding {
	return schemas.Finding{ID: "fsck.blob", Severity: schemas.SeverityError, Subject: kindOther, Blob: b.digest, File: blobName(b.digest),
		Message: "a " + b.what + " stands in its place", Remedy: fixable + " moves it to assay/quarantine"}
}

// blobs lists the blobs of the store by digest. Files whose names are no digests
// are left out.
func (s *Store) blobs(ctx context.Context) ([]storedBlob, error) {
	entries, err := os.ReadDir(s.path(blobsDir))
	if err != nil {
		return nil, fmt.Errorf("list blobs: %w", err)
	}
	out := make([]storedBlob, 0, len(entries))
	for _, e := range entries {
		d := schemas.Digest("sha256:" + e.Name())
		if !d.Valid() {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list blobs: %w", err)
		}
		b := storedBlob{digest: d, size: info.Size(), modified: info.ModTime(), stamp: statcache.StampOf(info)}
		if !info.Mode().IsRegular() {
			b.what, b.size = durable.TypeName(info.Mode()), 0
		}
		out = append(out, b)
	}
	return out, nil
}

// marker finds every blob that is needed. Documents whose bytes are not what
// their digest promises stop it: what they name cannot be known.
type marker struct {
	s    *Store
	ctx  context.Context
	live map[schemas.Digest]bool
	read map[schemas.Digest]bool // documents whose names are marked
	// sources also follows the source runs of runs.
	sources bool
	// kept are the source runs that are reached, with the run that names each.
	kept map[schemas.Digest]schemas.Digest
}

func (s *Store) newMarker(ctx context.Context) *marker {
	return &marker{s: s, ctx: ctx, live: map[schemas.Digest]bool{}, read: map[schemas.Digest]bool{}, sources: true, kept: map[schemas.Digest]schemas.Digest{}}
}

// roots marks what the journals of unsealed runs and the index name, in this
// order: a run that is sealed meanwhile leaves its journal for the index.
func (m *marker) roots() error {
	if err := m.journals(); err != nil {
		return err
	}
	x, err := m.s.readIndex()
	if errors.Is(err, ErrIndex) {
		return fmt.Errorf("%w: `assay fsck --repair` makes it anew", err)
	}
	if err != nil {
		return err
	}
	progress := newMeter(m.ctx, PhaseMark, int64(len(x.Manifests)))
	defer progress.end()
	for _, d := range x.Manifests {
		progress.add(1)
		if err := m.manifest(digestOf(d)); err != nil {
			return fmt.Errorf("the index names %s: %w: `assay fsck` says more; restore it, or give the run up with `assay rm`", digestOf(d), err)
		}
	}
	return nil
}

// manifest marks a manifest or an index, of ours or not, and all below it.
func (m *marker) manifest(d schemas.Digest) error {
	if m.read[d] {
		return nil
	}
	if err := m.ctx.Err(); err != nil {
		return err
	}
	b, err := m.s.readBlob(d, maxIndexBytes)
	if err != nil {
		return err
	}
	var any struct {
		ArtifactType string          `json:"artifactType"`
		Config       *v1.Descriptor  `json:"config"`
		Layers       []v1.Descriptor `json:"layers"`
		Blobs        []v1.Descriptor `json:"blobs"`
		Manifests    []v1.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(b, &any); err != nil {
		return fmt.Errorf("manifest %s: %w", d, err)
	}
	m.live[d], m.read[d] = true, true
	for _, l := range append(any.Layers, any.Blobs...) {
		m.live[digestOf(l)] = true
	}
	for _, l := range any.Manifests {
		if err := m.manifest(digestOf(l)); err != nil {
			return err
		}
	}
	if any.Config == nil {
		return nil
	}
	m.live[digestOf(*any.Config)] = true
	if any.ArtifactType != ArtifactType {
		return nil
	}
	return m.config(d, digestOf(*any.Config))
}

// config marks what a run's config names beyond its manifest: documents that are
// bundled there and stand alone here, packs that only trees name, source runs.
func (m *marker) config(run, d schemas.Digest) error {
	b, err := m.s.readBlob(d, maxDocBytes)
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	var c schemas.Run
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("config %s: %w", d, err)
	}
	for _, doc := range stageDocs(c) {
		if doc.media == MediaTree {
			if err := m.tree(doc.digest); err != nil {
				return err
			}
		}
		m.live[doc.digest] = true
	}
	for _, src := range c.Sources {
		if !m.sources || !src.Digest.Valid() {
			continue
		}
		if _, err := m.s.blobSize(src.Digest); errors.Is(err, fs.ErrNotExist) {
			continue // it lies elsewhere
		}
		err := m.manifest(src.Digest)
		if err != nil {
			return fmt.Errorf("source run %s: %w", src.Digest.Short(), err)
		}
		m.kept[src.Digest] = run
	}
	return nil
}

// tree marks a tree document and the blobs it names; one that is not there names
// none.
func (m *marker) tree(d schemas.Digest) error {
	if m.read[d] || !d.Valid() {
		return nil
	}
	t, err := m.s.treeBlobs(d)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	m.live[d], m.read[d] = true, true
	for _, blob := range t.Blobs {
		m.live[blob.Digest] = true
	}
	return nil
}

// namedInJournal is how digests and keys are written.
var namedInJournal = regexp.MustCompile(`(?:sha256|key):([0-9a-f]{64})`)

// journals marks everything that any journal names, without a look at what for:
// a journal may be torn, or of another version.
func (m *marker) journals() error {
	entries, err := os.ReadDir(m.s.JournalDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read journals: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".lock") || !e.Type().IsRegular() && !strings.HasSuffix(e.Name(), journalSuffix) {
			continue
		}
		b, err := readPlain(filepath.Join(m.s.JournalDir(), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // its run was sealed meanwhile
		}
		if err != nil {
			return fmt.Errorf("read journals: %w", err)
		}
		for _, found := range namedInJournal.FindAllSubmatch(b, -1) {
			if err := m.named(schemas.Digest("sha256:" + string(found[1]))); err != nil {
				return fmt.Errorf("journal %s: %w: `assay fsck` says more", e.Name(), err)
			}
		}
	}
	return nil
}

// named marks a blob that something names, and what it names itself when it is a
// record, a tree or a manifest.
func (m *marker) named(d schemas.Digest) error {
	if m.read[d] {
		return nil
	}
	m.live[d] = true
	switch m.s.sniff(d) {
	case kindRecord:
		rec, err := m.s.readRecord(d)
		if err != nil {
			return err
		}
		m.read[d], m.live[rec.Key.Preimage()] = true, true
		return m.tree(rec.Tree)
	case kindTree:
		return m.tree(d)
	case kindManifest:
		return m.manifest(d)
	}
	return nil
}

// Kinds of blobs, as people are told.
const (
	kindManifest = "manifest"
	kindConfig   = "config"
	kindRecord   = "record"
	kindTree     = "tree"
	kindOther    = "blob"
)

// sniff guesses what a blob is from its beginning: our documents are canonical
// JSON, so the first field tells. Manifests may be another tool's, with spaces and
// in any order: what may be one is read.
func (s *Store) sniff(d schemas.Digest) string {
	f, err := durable.OpenPlain(s.blobPath(d))
	if err != nil {
		return kindOther
	}
	defer f.Close()
	head := make([]byte, 24)
	n, _ := io.ReadFull(f, head)
	switch h := string(head[:n]); {
	case strings.HasPrefix(h, `{"attempt":`):
		return kindRecord
	case strings.HasPrefix(h, `{"blobs":`):
		return kindTree
	case strings.HasPrefix(h, `{"schemaVersion":2`):
		return kindManifest
	case !strings.HasPrefix(strings.TrimLeft(h, " \t\r\n"), "{") && strings.TrimLeft(h, " \t\r\n") != "":
		return kindOther
	}
	if info, err := f.Stat(); err != nil || info.Size() > maxManifestBytes {
		return kindOther
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxManifestBytes))
	if err == nil && isManifest(append(head[:n:n], rest...)) {
		return kindManifest
	}
	return kindOther
}
