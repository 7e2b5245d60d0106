package archive

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"assay/internal/statcache"
	"assay/schemas"
)

// checkCaches holds what is remembered against the store. A row about a blob that
// was collected since is no fault: nobody believes it.
func (f *fsck) checkCaches() error {
	for _, name := range []string{"files", "inputs", "blobs"} {
		file := cacheDir + "/" + name
		if f.odd[file] {
			continue // told already
		}
		path := f.s.path(file)
		table := statcache.NewFiles(path).Table
		if name == "blobs" {
			table = statcache.NewTable(path, sha256.Size, knownValue, statcache.DefaultMaxRows)
		}
		if err := table.Load(); err != nil {
			return err
		}
		if table.Damaged() {
			f.caches = append(f.caches, table)
			f.add(schemas.Finding{ID: "fsck.cache", Severity: schemas.SeverityWarning, Subject: file, File: file,
				Message: "it is torn, changed, or of another version: what it says is not believed, and is read anew", Remedy: fixable + " drops what cannot be read"})
		}
		if name == "blobs" {
			if err := f.checkKnown(table); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkKnown reads the blobs that the table of stored blobs names.
func (f *fsck) checkKnown(table *statcache.Table) error {
	m := newMeter(f.ctx, PhaseCheck, 0)
	defer m.end()
	p := &rowProver{f: f, m: m, keys: map[schemas.Blob]map[string]bool{}}
	var first schemas.Blob
	table.Each(func(key, v []byte) bool {
		b, ok := p.holds(key, v)
		if !ok {
			if len(f.lies) == 0 {
				first = b
			}
			f.lies[string(key)] = string(v)
		}
		return f.ctx.Err() == nil
	})
	if err := f.ctx.Err(); err != nil || len(f.lies) == 0 {
		return err
	}
	f.caches = append(f.caches, table)
	file := cacheDir + "/blobs"
	f.add(schemas.Finding{ID: "fsck.cache", Severity: schemas.SeverityWarning, Subject: file, File: file, Blob: first.Digest,
		Message: fmt.Sprintf("%d rows say of content that it lies in a blob in which it was not found", len(f.lies)),
		Remedy:  fixable + " drops them; then verify the runs that were sealed since they were written"})
	return nil
}

// rowProver reads each blob once.
type rowProver struct {
	f     *fsck
	m     *meter
	keys  map[schemas.Blob]map[string]bool
	trees map[string]schemas.Digest // names of parts of files in several blobs
}

// holds says that a row is not known to be false: it is a hint, its blob is gone
// or known to be wrong, or the content is in it.
func (p *rowProver) holds(key, v []byte) (schemas.Blob, bool) {
	b, _, ok := parseRow(key, v)
	if !ok {
		return b, v[0] == 0
	}
	if size, there := p.f.sizes[b.Digest]; !there || p.f.bad[b.Digest] != nil {
		return b, true
	} else if size != b.Size {
		return b, false
	}
	if _, read := p.keys[b]; !read {
		p.keys[b] = map[string]bool{}
		names, err := p.f.s.contentKeys(p.f.ctx, b)
		p.m.add(b.Size)
		if errors.Is(err, fs.ErrNotExist) {
			delete(p.f.sizes, b.Digest) // collected meanwhile
			return b, true
		}
		if err == nil {
			for _, n := range names {
				p.keys[b][string(n)] = true
			}
		}
	}
	return b, p.keys[b][string(key)] || b.MediaType != MediaPack && p.partNames()[string(key)] == b.Digest
}

// partNames names the parts of files in several blobs, as the tree documents of
// the store have them.
func (p *rowProver) partNames() map[string]schemas.Digest {
	if p.trees != nil {
		return p.trees
	}
	p.trees = map[string]schemas.Digest{}
	for d := range p.f.sizes {
		if p.f.s.sniff(d) != kindTree {
			continue
		}
		t, err := p.f.s.readTree(d)
		if err != nil {
			continue // it names nothing
		}
		for _, e := range t.Entries {
			for n, part := range e.Parts {
				if len(e.Parts) > 1 {
					p.trees[string(partKey(e.Digest, n))] = part.Blob
				}
			}
		}
	}
	return p.trees
}

// repairCaches drops lies, and what cannot be read.
func (f *fsck) repairCaches() error {
	done := map[*statcache.Table]bool{}
	for _, table := range f.caches {
		if done[table] {
			continue
		}
		done[table] = true
		if err := table.Filter(func(key, v []byte) bool { return f.lies[string(key)] != string(v) }); err != nil {
			return err
		}
		f.did("dropped what is false or cannot be read from %s", f.rel(table.Path()))
	}
	return nil
}
