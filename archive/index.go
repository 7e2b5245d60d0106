package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"sort"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/internal/durable"
	"assay/schemas"
	"strings"
)

const (
	indexName     = "index.json"
	indexLockName = "assay/index.lock"
	ociIndexType  = types.OCIImageIndex
)

var tagGrammar = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)

// RunInfo is a sealed run as index.json lists it.
type RunInfo struct {
	Digest     schemas.Digest    `json:"digest"`
	ID         string            `json:"id"`
	Experiment string            `json:"experiment"`
	Status     schemas.RunStatus `json:"status"`
	Created    time.Time         `json:"created"`
	Sequence   int64             `json:"sequence"` // order of sealing in its store
	Tags       []string          `json:"tags"`
	Size       int64             `json:"manifest_bytes"`
}

// parseIndex reads an index.json. Manifests that are no runs of ours are allowed.
func parseIndex(b []byte) (v1.IndexManifest, error) {
	var x v1.IndexManifest
	if err := json.Unmarshal(b, &x); err != nil {
		return x, fmt.Errorf("index.json: %w", err)
	}
	if x.SchemaVersion != 2 {
		return x, fmt.Errorf("index.json: schemaVersion is %d, want 2", x.SchemaVersion)
	}
	for _, d := range x.Manifests {
		if !schemas.Digest(d.Digest.String()).Valid() { // also of others: it could not be written again
			return x, fmt.Errorf("index.json: %q is no digest", d.Digest.String())
		}
	}
	return x, nil
}

// ErrIndex is wrapped when index.json is missing or damaged: its runs can then
// be named by full digest only.
var ErrIndex = errors.New("index.json is damaged")

func (l *Layout) readIndex() (v1.IndexManifest, error) {
	b, err := readAll(l.src, indexName, maxIndexBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return v1.IndexManifest{}, fmt.Errorf("read index of %s: %w: it is missing", l.name, ErrIndex)
	}
	if errors.Is(err, durable.ErrNotRegular) {
		return v1.IndexManifest{}, fmt.Errorf("read index of %s: %w: %w", l.name, ErrIndex, err)
	}
	if err != nil {
		return v1.IndexManifest{}, fmt.Errorf("read index of %s: %w", l.name, err)
	}
	x, err := l.parse(b)
	if err != nil {
		return x, fmt.Errorf("read index of %s: %w: %w", l.name, ErrIndex, err)
	}
	for i := range x.Manifests {
		l.complete(&x.Manifests[i])
	}
	return x, nil
}

// complete puts back what other tools leave out of a run's descriptor when they
// copy it: its type and its annotations are in the manifest too.
func (l *Layout) complete(d *v1.Descriptor) {
	if d.ArtifactType != "" || string(d.MediaType) != mediaManifest || d.Size > maxManifestBytes || !digestOf(*d).Valid() {
		return
	}
	b, err := readAll(l.src, blobName(digestOf(*d)), maxManifestBytes)
	if err != nil || !bytes.Contains(b, []byte(`"`+ArtifactType+`"`)) {
		return
	}
	d.ArtifactType = ArtifactType // even if it is damaged: verify then says so
	m, err := parseManifest(b)
	if err != nil {
		return
	}
	all := map[string]string{}
	maps.Copy(all, m.Annotations)
	maps.Copy(all, d.Annotations)
	d.Annotations = all
}

// Runs lists the sealed runs, oldest first.
func (l *Layout) Runs(_ context.Context) ([]RunInfo, error) {
	x, err := l.readIndex()
	if err != nil {
		return nil, err
	}
	return runsOf(x), nil
}

// Runs lists the sealed runs, oldest first.
func (s *Store) Runs(ctx context.Context) ([]RunInfo, error) {
	runs, err := s.Layout.Runs(ctx)
	if errors.Is(err, ErrIndex) {
		err = fmt.Errorf("%w: `assay fsck --repair` makes it anew", err)
	}
	return runs, err
}

func runsOf(x v1.IndexManifest) []RunInfo {
	at := map[schemas.Digest]int{}
	var out []RunInfo
	for _, d := range x.Manifests {
		if d.ArtifactType != ArtifactType {
			continue
		}
		digest := schemas.Digest(d.Digest.String())
		i, ok := at[digest]
		if !ok {
			i = len(out)
			at[digest] = i
			a := d.Annotations
			created, _ := time.Parse(time.RFC3339Nano, a[annotationCreated])
			seq, _ := strconv.ParseInt(a[annotationSequence], 10, 64)
			out = append(out, RunInfo{Digest: digest, ID: a[annotationRun], Experiment: a[annotationExperiment],
				Status: schemas.RunStatus(a[annotationStatus]), Created: created, Sequence: seq, Tags: []string{}, Size: d.Size})
		}
		if tag := d.Annotations[annotationTag]; tag != "" {
			out[i].Tags = append(out[i].Tags, tag)
		}
	}
	for i := range out {
		sort.Strings(out[i].Tags)
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].Sequence != out[j].Sequence {
			return out[i].Sequence < out[j].Sequence
		}
		return out[i].Created.Before(out[j].Created)
	})
	return out
}

// sealedRuns holds the ids of the runs in the index.
func (s *Store) sealedRuns() (map[string]bool, error) {
	runs, err := s.Runs(context.Background())
	if err != nil {
		return nil, err
	}
	m := make(map[string]bool, len(runs))
	for _, r := range runs {
		m[r.ID] = true
	}
	return m, nil
}

// updateIndex replaces index.json by what change makes of it, under the lock
// that all processes of this host share. Which runs were removed is noted.
func (s *Store) updateIndex(change func(*v1.IndexManifest) error) error {
	unlock, err := durable.Lock(s.path(indexLockName))
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	x, err := s.readIndex()
	if err != nil {
		return err
	}
	before := runIDs(x)
	if err := change(&x); err != nil {
		return err
	}
	gone, added := indexChange(before, x)
	if err := s.takeBack(added); err != nil {
		return err
	}
	x.MediaType = ociIndexType
	if err := s.replaceIndex(x); err != nil {
		return err
	}
	if err := s.noteRemovals(gone); err != nil {
		return fmt.Errorf("the runs are out of the index, which could not be noted in %s (a repair of a lost index.json would list them again): %w", removedName, err)
	}
	return nil
}

// sortIndex orders by sequence, then untagged before tags by name. Manifests of
// others come first, in their order.
func sortIndex(list []v1.Descriptor) {
	seq := func(d v1.Descriptor) int64 {
		n, _ := strconv.ParseInt(d.Annotations[annotationSequence], 10, 64)
		return n
	}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if seq(a) != seq(b) {
			return seq(a) < seq(b)
		}
		return seq(a) > 0 && a.Annotations[annotationTag] < b.Annotations[annotationTag]
	})
}

// addRun puts a run's descriptor into the index, once, with the next sequence
// number, and its tag.
func addRun(x *v1.IndexManifest, d v1.Descriptor, tag string) error {
	var last int64
	for _, have := range x.Manifests {
		if have.Digest == d.Digest && have.ArtifactType == ArtifactType {
			renew(x, d)
			return setTag(x, tag, d.Digest)
		}
		n, _ := strconv.ParseInt(have.Annotations[annotationSequence], 10, 64)
		last = max(last, n)
	}
	d.Annotations[annotationSequence] = strconv.FormatInt(last+1, 10)
	x.Manifests = append(x.Manifests, d)
	return setTag(x, tag, d.Digest)
}

// renew makes what the index says of a run what d says of it.
func renew(x *v1.IndexManifest, d v1.Descriptor) {
	for i, have := range x.Manifests {
		if have.Digest != d.Digest {
			continue
		}
		c := *d.DeepCopy()
		for _, keep := range []string{annotationSequence, annotationTag} {
			if v, ok := have.Annotations[keep]; ok {
				c.Annotations[keep] = v
			}
		}
		x.Manifests[i] = c
	}
}

// setTag makes tag name the run, and no other. "" does nothing.
func setTag(x *v1.IndexManifest, tag string, run v1.Hash) error {
	if tag == "" {
		return nil
	}
	var tagged *v1.Descriptor
	kept := x.Manifests[:0:0]
	for _, d := range x.Manifests {
		if d.Digest == run && d.ArtifactType == ArtifactType && tagged == nil {
			c := *d.DeepCopy()
			if c.Annotations == nil {
				c.Annotations = map[string]string{}
			}
			c.Annotations[annotationTag] = tag
			tagged = &c
		}
		switch {
		case d.Annotations[annotationTag] != tag:
			kept = append(kept, d)
		case d.ArtifactType != ArtifactType:
			return fmt.Errorf("the name belongs to manifest %s, which is no run", d.Digest)
		}
	}
	if tagged == nil {
		return fmt.Errorf("run %s: %w", run, fs.ErrNotExist)
	}
	x.Manifests = append(kept, *tagged)
	return nil
}

// CheckTag says whether name can be a tag.
func CheckTag(name string) error {
	if !tagGrammar.MatchString(name) {
		return fmt.Errorf("tag %q: want letters, digits, '_', '.' and '-', at most 128, not beginning with '.' or '-'", name)
	}
	if name == latest {
		return errors.New("tag \"latest\" always means the last sealed run and cannot be set")
	}
	return nil
}

// minPrefix is the fewest hex digits that name a run.
const minPrefix = 4

// Tag makes name a tag of the run; it leaves the run that had it before.
func (s *Store) Tag(_ context.Context, name string, run schemas.Digest) error {
	if err := CheckTag(name); err != nil {
		return err
	}
	h, err := v1.NewHash(string(run))
	if err != nil {
		return fmt.Errorf("tag %s: %w", name, err)
	}
	if err := s.updateIndex(func(x *v1.IndexManifest) error {
		for _, m := range x.Manifests {
			if len(name) >= minPrefix && strings.HasPrefix(m.Digest.Hex, name) {
				return fmt.Errorf("it is how the run %s may be written too: choose another name", m.Digest.Hex[:12])
			}
		}
		if err := s.correctRun(x, h); err != nil {
			return err
		}
		return setTag(x, name, h)
	}); err != nil {
		return fmt.Errorf("tag %s: %w", name, err)
	}
	return nil
}

// correctRun makes the descriptors of a run what its manifest says, so that no copy
// of a bad one is made.
func (s *Store) correctRun(x *v1.IndexManifest, run v1.Hash) error {
	for i, d := range x.Manifests {
		if d.Digest != run {
			continue
		}
		if _, err := s.manifestOf(digestOf(d)); err != nil {
			return err
		}
		want, err := s.describe(d)
		if err != nil {
			return err
		}
		x.Manifests[i] = want
	}
	return nil
}

// Untag removes a tag; the run stays.
func (s *Store) Untag(_ context.Context, name string) error {
	err := s.updateIndex(func(x *v1.IndexManifest) error {
		return removeTag(x, name)
	})
	if err != nil {
		return fmt.Errorf("untag %s: %w", name, err)
	}
	return nil
}

// removeTag drops the tag's descriptor, or only its name when the run has no
// other descriptor.
func removeTag(x *v1.IndexManifest, name string) error {
	count := map[v1.Hash]int{}
	for _, d := range x.Manifests {
		count[d.Digest]++
	}
	for i, d := range x.Manifests {
		if name == "" || d.Annotations[annotationTag] != name || d.ArtifactType != ArtifactType {
			continue
		}
		if count[d.Digest] > 1 {
			x.Manifests = append(x.Manifests[:i], x.Manifests[i+1:]...)
		} else {
			delete(d.Annotations, annotationTag)
		}
		return nil
	}
	return fs.ErrNotExist
}
