package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"assay/internal/durable"
	"assay/schemas"
)

// maxLooks is how often the index is held against the blobs when others change
// both meanwhile.
const maxLooks = 5

// checkIndex compares the index with the blobs. Runs are sealed, removed and
// collected meanwhile: a fault counts when the index that has it is still there
// after it was found.
func (f *fsck) checkIndex() error {
	progress := newMeter(f.ctx, PhaseMark, 0)
	defer func() { progress.end() }()
	x, err := f.s.readIndex()
	for look := 1; err == nil; look++ {
		progress = newMeter(f.ctx, PhaseMark, int64(len(x.Manifests)))
		var found []schemas.Finding
		if found, err = f.holdIndex(x, progress); err != nil {
			return err
		}
		before := x
		if x, err = f.s.readIndex(); err != nil {
			break
		}
		if len(found)+len(f.missing) == 0 || look == maxLooks || sameIndex(before, x) {
			f.report.Findings = append(f.report.Findings, found...)
			return f.checkNote()
		}
		progress.end()
	}
	if !errors.Is(err, ErrIndex) {
		return err
	}
	f.badIndex = true
	if f.odd[indexName] {
		return nil // told already
	}
	f.add(schemas.Finding{ID: "fsck.index", Severity: schemas.SeverityError, Subject: indexName, File: indexName, Message: err.Error(),
		Remedy: "`assay fsck --repair` makes it anew from the runs' manifests; tags that cannot be read are lost"})
	return nil
}

func sameIndex(a, b v1.IndexManifest) bool {
	if len(a.Manifests) != len(b.Manifests) {
		return false
	}
	for i, d := range a.Manifests {
		if len(descriptorDiff(d, b.Manifests[i]))+len(descriptorDiff(b.Manifests[i], d)) > 0 {
			return false
		}
	}
	return true
}

// holdIndex holds one reading of the index against the blobs.
func (f *fsck) holdIndex(x v1.IndexManifest, progress *meter) ([]schemas.Finding, error) {
	clear(f.missing)
	right, faults, err := f.s.corrected(x)
	if err != nil {
		return nil, err
	}
	f.faults = faults
	var found []schemas.Finding
	for _, fault := range faults {
		one := schemas.Finding{ID: "fsck.index", Severity: schemas.SeverityError, Subject: indexName, File: indexName, Blob: fault.blob,
			Message: fault.Error(), Remedy: fixable + " corrects it; tags stay"}
		if fault.byHand != "" {
			one.Remedy = fault.byHand
		}
		found = append(found, one)
	}
	f.runs = runsOf(right)
	f.report.Runs = len(f.runs)
	for _, d := range right.Manifests {
		_, there, err := f.size(digestOf(d), d.Size)
		if err != nil {
			return nil, err
		}
		if !there {
			f.missing[digestOf(d)] = true
		}
	}
	for _, r := range f.runs {
		if err := f.ctx.Err(); err != nil {
			return nil, err
		}
		progress.add(1)
		more, err := f.checkRun(r)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// checkRun looks for the blobs of a run. Their content is checked already; what
// is in them is for verify.
func (f *fsck) checkRun(r RunInfo) ([]schemas.Finding, error) {
	if f.bad[r.Digest] != nil || f.missing[r.Digest] {
		return nil, nil
	}
	wrong := schemas.Finding{ID: "fsck.manifest", Severity: schemas.SeverityError, Subject: "run " + r.ID, Blob: r.Digest, Run: string(r.Digest)}
	m, err := f.s.manifestOf(r.Digest)
	if errors.Is(err, fs.ErrNotExist) {
		f.missing[r.Digest] = true
		return nil, nil
	}
	if err != nil {
		wrong.Message, wrong.Remedy = err.Error(), "`assay verify` says more; restore the run from another copy"
		return []schemas.Finding{wrong}, nil
	}
	var found []schemas.Finding
	for _, l := range append(m.Layers, m.Config) {
		d := digestOf(l)
		size, there, err := f.size(d, l.Size)
		switch {
		case err != nil:
			return nil, err
		case !there:
			f.missing[d] = true
		case size != l.Size && f.bad[d] == nil:
			one := wrong
			one.Blob, one.Message, one.Remedy = d, fmt.Sprintf("the manifest gives the blob %d bytes, it has %d", l.Size, size), "restore the run from another copy"
			found = append(found, one)
		}
	}
	return found, nil
}

// checkNote compares the index with what was noted of it. When it differs, it is
// looked at again while nobody writes it.
func (f *fsck) checkNote() error {
	changed, _, err := f.s.indexChanged()
	if err == nil && !changed {
		return nil
	}
	var tags []string
	if unlock, lerr := durable.RLock(f.s.path(indexLockName)); lerr == nil {
		changed, tags, err = f.s.indexChanged()
		_ = unlock()
	} else {
		changed, tags, err = f.s.indexChanged() // a store that may only be read
	}
	if errors.Is(err, ErrIndex) || errors.Is(err, fs.ErrNotExist) {
		return nil // replaced by something else meanwhile: the next check tells
	}
	if err != nil || !changed {
		return err
	}
	f.unnoted = true
	x := schemas.Finding{ID: "fsck.index", Severity: schemas.SeverityWarning, Subject: indexName, File: indexName,
		Message: "it is not what assay wrote: another tool changed it, or it was damaged", Remedy: "look at the tags (`assay ls`); " + fixable + ", and the next change of the index, take it as it is"}
	if len(tags) > 0 {
		x.Message += "; when assay wrote it, these tags were there that are not, or name other runs: " + strings.Join(tags, ", ")
	}
	f.add(x)
	return nil
}

// repairDescriptors writes what the blobs say over what the index says, and notes
// the index as it is.
func (f *fsck) repairDescriptors() error {
	if f.badIndex || len(f.faults) == 0 && !f.unnoted {
		return nil
	}
	unlock, err := durable.Lock(f.s.path(indexLockName))
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	x, err := f.s.readIndex()
	if err != nil {
		return err
	}
	right, faults, err := f.s.corrected(x)
	if err != nil {
		return err
	}
	right.MediaType = ociIndexType
	n := 0
	for _, fault := range faults {
		if fault.byHand == "" {
			n++
		}
	}
	if n > 0 {
		old, err := readPlain(f.s.path(indexName))
		if err == nil {
			err = f.keepIndex(old)
		}
		if err != nil {
			return err
		}
	}
	if err := f.s.replaceIndex(right); err != nil {
		return err
	}
	if n > 0 {
		f.did("corrected %d descriptors of index.json by the blobs; its tags stay", n)
	}
	if f.unnoted {
		f.did("took index.json as it is")
	}
	return nil
}
