package archive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"assay/schemas"
)

// Usage is what runs cost on disk.
type Usage struct {
	Runs []RunUsage `json:"runs"` // most unique bytes first
	// Bytes and Blobs are all that is in the store; Shared counts what several runs
	// use once; Other is what no run uses: work that is not sealed, and garbage.
	Blobs       int   `json:"blobs"`
	Bytes       int64 `json:"bytes"`
	UniqueBytes int64 `json:"unique_bytes"`
	SharedBytes int64 `json:"shared_bytes"`
	OtherBytes  int64 `json:"other_bytes"`
	Quarantine  int64 `json:"quarantine_bytes"`
	// Findings are blobs that are no files: they count for nothing.
	Findings []schemas.Finding `json:"findings"`
}

// RunUsage is what one run costs. Removing it, and collecting, frees its unique
// bytes.
type RunUsage struct {
	RunInfo
	// Listed is false for a source run that is in no index any more.
	Listed      bool  `json:"listed"`
	Blobs       int   `json:"blobs"`
	Bytes       int64 `json:"bytes"`
	UniqueBytes int64 `json:"unique_bytes"`
	SharedBytes int64 `json:"shared_bytes"`
}

// Usage counts the bytes of every run of the index and of their source runs.
func (s *Store) Usage(ctx context.Context) (Usage, error) {
	fail := func(err error) (Usage, error) { return Usage{}, fmt.Errorf("usage of %s: %w", s.dir, err) }
	list, err := s.blobs(ctx)
	if err != nil {
		return fail(err)
	}
	runs, err := s.Runs(ctx)
	if err != nil {
		return fail(err)
	}
	u := Usage{Runs: []RunUsage{}, Findings: []schemas.Finding{}}
	for _, r := range runs {
		u.Runs = append(u.Runs, RunUsage{RunInfo: r, Listed: true})
	}
	owners, err := s.owners(ctx, &u)
	if err != nil {
		return fail(err)
	}
	for _, b := range list {
		if b.what != "" {
			u.Findings = append(u.Findings, b.odd())
			continue
		}
		u.count(b, owners[b.digest])
	}
	if u.Quarantine, err = folderBytes(s.path(quarantineDir)); err != nil {
		return fail(err)
	}
	sort.SliceStable(u.Runs, func(i, j int) bool {
		a, b := u.Runs[i], u.Runs[j]
		if a.UniqueBytes != b.UniqueBytes {
			return a.UniqueBytes > b.UniqueBytes
		}
		return a.Bytes > b.Bytes
	})
	return u, nil
}

// owners says which runs (by index in u.Runs) use each blob. Source runs that are
// in no index are added to u.Runs.
func (s *Store) owners(ctx context.Context, u *Usage) (map[schemas.Digest][]int32, error) {
	owners := map[schemas.Digest][]int32{}
	at := map[schemas.Digest]bool{}
	for _, r := range u.Runs {
		at[r.Digest] = true
	}
	progress := newMeter(ctx, PhaseMark, int64(len(u.Runs)))
	defer progress.end()
	for i := 0; i < len(u.Runs); i++ {
		progress.add(1)
		run := u.Runs[i].Digest
		m := s.newMarker(ctx)
		m.sources = false
		if err := m.manifest(run); err != nil {
			return nil, fmt.Errorf("run %s: %w: `assay fsck` says more", run.Short(), err)
		}
		for d := range m.live {
			owners[d] = append(owners[d], int32(i))
		}
		sources, err := s.sourcesOf(run)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", run.Short(), err)
		}
		for _, src := range sources {
			if _, err := s.blobSize(src); err == nil && !at[src] {
				at[src] = true
				u.Runs = append(u.Runs, RunUsage{RunInfo: s.infoOf(src)})
			}
		}
	}
	return owners, nil
}

// infoOf is what a run that is in no index says of itself.
func (s *Store) infoOf(run schemas.Digest) RunInfo {
	info := RunInfo{Digest: run, Tags: []string{}}
	if m, err := s.manifestOf(run); err == nil {
		info.ID, info.Experiment = m.Annotations[annotationRun], m.Annotations[annotationExperiment]
		info.Status = schemas.RunStatus(m.Annotations[annotationStatus])
	}
	return info
}

func (u *Usage) count(b storedBlob, owners []int32) {
	u.Blobs++
	u.Bytes += b.size
	switch len(owners) {
	case 0:
		u.OtherBytes += b.size
	case 1:
		u.UniqueBytes += b.size
	default:
		u.SharedBytes += b.size
	}
	for _, i := range owners {
		r := &u.Runs[i]
		r.Blobs++
		r.Bytes += b.size
		if len(owners) == 1 {
			r.UniqueBytes += b.size
		} else {
			r.SharedBytes += b.size
		}
	}
}

// folderBytes sums the files directly in a folder; 0 for one that is missing.
func folderBytes(dir string) (int64, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, n := range names {
		info, err := os.Lstat(n)
		if err != nil {
			return 0, err
		}
		if info.Mode().IsRegular() {
			sum += info.Size()
		}
	}
	return sum, nil
}
