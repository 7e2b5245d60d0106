package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"assay/internal/durable"
	"assay/internal/statcache"
	"assay/schemas"
)

// repair does what the checks have found to do. Each step is complete by itself
// and can be repeated: a repair cut short is finished by the next one.
func (f *fsck) repair() error {
	for _, step := range []func() error{f.repairFormatFile, f.repairLayoutFile, f.quarantine, f.removeLeftovers, f.repairIndex, f.repairDescriptors, f.repairRecords, f.repairCaches} {
		if err := f.ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (f *fsck) did(format string, args ...any) {
	f.report.Repaired = append(f.report.Repaired, fmt.Sprintf(format, args...))
}

func (f *fsck) repairLayoutFile() error {
	if !f.layoutFile {
		return nil
	}
	if err := durable.WriteFile(f.s.path("oci-layout"), []byte(ociLayoutText), 0o644); err != nil {
		return err
	}
	f.did("wrote oci-layout")
	return nil
}

// quarantine moves wrong blobs and unreadable journals out of the way.
func (f *fsck) quarantine() error {
	var blobs []schemas.Digest
	for d, err := range f.bad {
		var corrupt *CorruptError
		if errors.As(err, &corrupt) { // what cannot be read today may be readable tomorrow
			blobs = append(blobs, d)
		}
	}
	if len(blobs)+len(f.journals) == 0 {
		return nil
	}
	slices.Sort(blobs)
	if err := durable.MkdirAll(f.s.path(quarantineDir)); err != nil {
		return err
	}
	unlock, err := durable.Lock(f.s.path(sweepLockName))
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	for _, d := range blobs {
		healed, err := f.healed(d)
		if err != nil {
			return err
		}
		if healed {
			delete(f.bad, d)
			f.did("left %s: it was written anew meanwhile", f.rel(f.s.blobPath(d)))
			continue
		}
		if err := f.moveAway(f.s.blobPath(d)); err != nil {
			return err
		}
	}
	for _, p := range f.journals {
		if err := f.moveAway(p); err != nil {
			return err
		}
	}
	return nil
}

// healed says that a blob that was wrong is right now: whoever stored its content
// again has replaced it. No other can do so while the sweep lock is held.
func (f *fsck) healed(d schemas.Digest) (bool, error) {
	info, err := os.Lstat(f.s.blobPath(d))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || statcache.StampOf(info) == f.stamps[d] {
		return false, err
	}
	bad, err := f.s.hashBlob(f.ctx, d, nil)
	return bad == nil && err == nil, err
}

// freeName keeps what is in quarantine already.
func (f *fsck) freeName(base string) (string, error) {
	for n := 0; ; n++ {
		name := base
		if n > 0 {
			name += "." + strconv.Itoa(n)
		}
		_, err := os.Lstat(f.s.path(quarantineDir + "/" + name))
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
}

func (f *fsck) removeLeftovers() error {
	for _, p := range f.remove {
		if err := durable.RemoveAll(p); err != nil {
			return err
		}
		f.did("removed %s", f.rel(p))
	}
	return nil
}

func (f *fsck) repairRecords() error {
	if !f.records && len(f.bad) == 0 {
		return nil
	}
	n, err := f.s.Rebuild(f.ctx)
	if err != nil {
		return err
	}
	f.did("made the record index anew: %d records", n)
	return nil
}

// repairIndex makes index.json from the manifests among the blobs. The damaged
// one is copied to quarantine before it is replaced.
func (f *fsck) repairIndex() error {
	if !f.badIndex {
		return nil
	}
	unlock, err := durable.Lock(f.s.path(indexLockName))
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	if _, err := f.s.readIndex(); !errors.Is(err, ErrIndex) {
		return err // repaired or replaced meanwhile
	}
	old, err := readPlain(f.s.path(indexName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil {
		if err := f.keepIndex(old); err != nil {
			return err
		}
	}
	x, skipped, err := f.rebuiltIndex()
	if err != nil {
		return err
	}
	f.report.Runs = len(runsOf(x))
	tags, lost := salvageTags(&x, old)
	noted, gone := f.s.notedTags(&x)
	tags, lost = tags+len(noted), union(lost, gone, noted)
	if len(noted) > 0 {
		f.did("took the tags %s from %s", quoteAll(noted), indexSumName)
	} else if len(old) == 0 {
		f.did("of the old index.json nothing is left: all its tags are lost")
	}
	if err := f.s.replaceIndex(x); err != nil {
		return err
	}
	f.did("made index.json anew: %d runs, %d tags saved, %d manifests of runs that are incomplete left out", len(runsOf(x)), tags, skipped)
	if len(lost) > 0 {
		f.did("lost the tags %s: what is left of the old index.json does not say of which run they are, or it is not whole or was removed", quoteAll(lost))
	}
	if n := len(f.leftOut); n > 0 {
		f.did("left out %d runs that were removed and not yet collected: %s", n, strings.Join(f.leftOut, ", "))
	}
	return nil
}

func (f *fsck) keepIndex(old []byte) error {
	if err := durable.MkdirAll(f.s.path(quarantineDir)); err != nil {
		return err
	}
	name, err := f.freeName("index.json")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(f.s.path(quarantineDir+"/"+name), old, 0o644); err != nil {
		return err
	}
	f.report.Quarantined = append(f.report.Quarantined, name)
	f.did("kept the damaged index.json as %s/%s", quarantineDir, name)
	return nil
}

// rebuiltIndex lists the manifests that are whole. Of several of one run, which a
// crash between manifest and index may leave, the last one is taken. Runs that
// were removed and not yet collected are left out.
func (f *fsck) rebuiltIndex() (x v1.IndexManifest, skipped int, err error) {
	x = v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{}}
	list, err := f.s.blobs(f.ctx)
	if err != nil {
		return x, 0, err
	}
	removed, err := f.s.removals()
	if err != nil {
		return x, 0, err
	}
	newest := map[string]v1.Descriptor{}
	for _, b := range list {
		raw, ok := f.s.maybeManifest(b)
		if !ok {
			continue
		}
		m, err := parseManifest(raw)
		if err != nil {
			if d, ok := f.s.foreignManifest(b, raw); ok {
				x.Manifests = append(x.Manifests, d)
			}
			continue
		}
		if l, ok := removed[b.digest]; ok {
			f.leftOut = append(f.leftOut, strings.TrimSpace(b.digest.Short()+" "+l.ID))
			continue
		}
		if !f.s.hasAll(m) {
			skipped++
			continue
		}
		d, err := descriptor(mediaManifest, b.digest, b.size, "")
		if err != nil {
			return x, skipped, err
		}
		d.ArtifactType, d.Annotations = ArtifactType, m.Annotations
		id := m.Annotations[annotationRun]
		if have, ok := newest[id]; !ok || createdAt(have).Before(createdAt(d)) {
			newest[id] = d
		}
	}
	runs := make([]v1.Descriptor, 0, len(newest))
	for _, d := range newest {
		runs = append(runs, d)
	}
	sort.Slice(runs, func(i, j int) bool {
		a, b := createdAt(runs[i]), createdAt(runs[j])
		return a.Before(b) || a.Equal(b) && runs[i].Digest.Hex < runs[j].Digest.Hex
	})
	for _, d := range runs {
		if err := addRun(&x, d, ""); err != nil {
			return x, skipped, err
		}
	}
	return x, skipped, nil
}

func createdAt(d v1.Descriptor) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, d.Annotations[annotationCreated])
	return t
}

// maybeManifest reads a blob that is a manifest or an index of anybody's.
func (s *Store) maybeManifest(b storedBlob) ([]byte, bool) {
	if b.what != "" || b.size > maxIndexBytes || b.size <= maxManifestBytes && s.sniff(b.digest) != kindManifest {
		return nil, false
	}
	if b.size > maxManifestBytes && !s.beginsAsObject(b.digest) {
		return nil, false
	}
	raw, err := s.readBlob(b.digest, maxIndexBytes)
	return raw, err == nil && isManifest(raw) // else it is damaged, or collected
}

// beginsAsObject is for long indexes: most long blobs are packed.
func (s *Store) beginsAsObject(d schemas.Digest) bool {
	f, err := durable.OpenPlain(s.blobPath(d))
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head)
	return bytes.HasPrefix(bytes.TrimLeft(head[:n], " \t\r\n"), []byte("{"))
}

// foreignManifest lists a manifest of another tool again, so that gc keeps it.
func (s *Store) foreignManifest(b storedBlob, raw []byte) (v1.Descriptor, bool) {
	m, ok := parseForeign(raw)
	if !ok || !s.present(m) {
		return v1.Descriptor{}, false
	}
	d, err := descriptor(string(m.kind()), b.digest, b.size, "")
	d.ArtifactType = m.ArtifactType
	return d, err == nil
}

// hasAll says whether every blob of a run is there.
func (s *Store) hasAll(m v1.Manifest) bool {
	for _, d := range append(m.Layers, m.Config) {
		if size, err := s.blobSize(digestOf(d)); err != nil || size != d.Size {
			return false
		}
	}
	return true
}
