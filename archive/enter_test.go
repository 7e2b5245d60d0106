package archive

import (
	"context"
	"fmt"
	"testing"
)

// bring copies into another store what a run's manifest names.
func bring(t *testing.T, from, into *Store, run *Run) {
	t.Helper()
	ctx := context.Background()
	raw, err := from.ManifestBytes(run.Digest)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := ManifestBlobs(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		r, _, err := from.OpenBlob(b.Digest, 0)
		if err == nil {
			err = into.PutBlob(ctx, b.Digest, b.Size, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
	}
	if _, err := into.AddRun(ctx, raw); err != nil {
		t.Fatal(err)
	}
}

func wantClean(t *testing.T, s *Store) {
	t.Helper()
	report, err := s.Fsck(context.Background(), FsckOptions{})
	if err != nil || len(report.Findings) > 0 {
		t.Errorf("fsck: %v, %+v", err, report.Findings)
	}
}

// A run that came from elsewhere gives its results like one that was sealed here.
func TestAddedRunsAreReused(t *testing.T) {
	stages := map[string]map[string]string{}
	for i := range 30 {
		n := fmt.Sprintf("s%d", i)
		stages[n] = map[string]string{"outputs/x/f": noise(3000, uint64(i)), "logs/stage.log": n}
	}
	for name, c := range map[string]struct {
		layers int
		reused bool
	}{
		"documents as layers": {maxLayers, true},
		"documents bundled":   {fixedLayers + 35, true},
		"packs filled up":     {10, false}, // the blobs that the trees name did not come
	} {
		t.Run(name, func(t *testing.T) {
			defer func(n int) { layerLimit = n }(layerLimit)
			layerLimit = c.layers
			ctx := context.Background()
			s, into := newStore(t), newStore(t)
			run, err := s.Run(ctx, sealRun(t, s, "r1", "", stages))
			if err != nil {
				t.Fatal(err)
			}
			if bundled := len(layersOf(run.Manifest, MediaDocuments)) > 0; bundled != (c.layers < maxLayers) {
				t.Fatalf("bundled: %v", bundled)
			}
			bring(t, s, into, run)
			bring(t, s, into, run) // again: nothing is listed twice
			wantClean(t, into)
			for _, r := range run.Config.Records {
				found, err := into.RecordsByKey(ctx, r.Record.Key)
				if err != nil {
					t.Fatal(err)
				}
				if reused := len(found) == 1 && found[0].Sealed && found[0].Digest == r.Digest; reused != c.reused {
					t.Fatalf("%s: %+v, want reused %v", r.Node, found, c.reused)
				}
				if !c.reused {
					continue
				}
				if err := into.CheckTree(ctx, r.Record.Tree); err != nil {
					t.Error(err)
				}
				if _, err := into.Preimage(ctx, r.Record.Key); err != nil {
					t.Error(err)
				}
			}
			age(t, into)
			if r := collect(t, into, GCOptions{Apply: true}); len(r.Garbage) != 0 {
				t.Errorf("%d blobs deleted", len(r.Garbage))
			}
			wantClean(t, into)
		})
	}
}
