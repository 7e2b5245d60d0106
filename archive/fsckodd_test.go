package archive

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// odds are the ways in which something else can stand in the place of a file. Each
// keeps the file's content near by, so that whoever follows a link reads it.
var odds = map[string]func(path string) error{
	"link": func(path string) error {
		return errors.Join(os.Rename(path, path+".kept"), os.Symlink(filepath.Base(path)+".kept", path))
	},
	"dangling link": func(path string) error { return errors.Join(os.Remove(path), os.Symlink("nowhere", path)) },
	"folder": func(path string) error {
		return errors.Join(os.Remove(path), os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "x"), nil, 0o600))
	},
	"pipe": func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
}

// inTime fails the test when fn blocks, as opening a pipe does.
func inTime(t *testing.T, what string, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatalf("%s waits for ever", what)
		return nil
	}
}

// Whatever stands in the place of a blob is a damaged blob to every reader.
func TestOddBlobs(t *testing.T) {
	ctx := context.Background()
	for kind, make := range odds {
		for _, which := range []string{MediaPack, MediaRecord, MediaConfig, mediaManifest} {
			t.Run(kind+" for "+which, func(t *testing.T) {
				s := newStore(t)
				run := sealRun(t, s, "r1", "kept", smallStages())
				age(t, s)
				d := run
				if m, err := s.manifestOf(run); err != nil {
					t.Fatal(err)
				} else if which == MediaConfig {
					d = digestOf(m.Config)
				} else if which != mediaManifest {
					d = digestOf(layersOf(m, which)[0])
				}
				target := time.Now().Add(-2 * time.Hour)
				if err := make(s.blobPath(d)); err != nil {
					t.Fatal(err)
				}
				if kind == "link" {
					if err := os.Chtimes(s.blobPath(d)+".kept", target, target); err != nil {
						t.Fatal(err)
					}
				}
				wantOddEverywhere(ctx, t, s, run, d)
				if kind == "link" {
					if info, err := os.Stat(s.blobPath(d) + ".kept"); err != nil || !info.ModTime().Equal(target) {
						t.Errorf("the link was followed: %v, %v", info, err)
					}
				}
				r := check(t, s, true)
				if !slices.Contains(r.Quarantined, d.Hex()) {
					t.Errorf("quarantined %v, want %s", r.Quarantined, d.Hex())
				}
				if _, err := os.Lstat(s.blobPath(d)); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("it is still there: %v", err)
				}
				if again := sealRun(t, s, "r1", "kept", smallStages()); again != run {
					t.Fatalf("run %s, want %s", again, run)
				}
				wantListed(t, s, run)
			})
		}
	}
}

func wantOddEverywhere(ctx context.Context, t *testing.T, s *Store, run, d schemas.Digest) {
	t.Helper()
	out := t.TempDir()
	refused := func(what string, fn func() error) {
		t.Helper()
		if err := inTime(t, what, fn); !errors.Is(err, durable.ErrNotRegular) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("open", func() error {
		r, _, err := s.OpenBlob(d, 0)
		if err == nil {
			_ = r.Close()
		}
		return err
	})
	refused("size", func() error { _, err := s.blobSize(d); return err })
	refused("check", func() error {
		err := s.CheckBlob(ctx, d, 1)
		if corrupt := (*CorruptError)(nil); !errors.As(err, &corrupt) {
			t.Errorf("check: %v is no *CorruptError", err)
		}
		return err
	})
	refused("tar", func() error {
		_, err := s.SaveTar(ctx, run, "", filepath.Join(out, "run.tar"))
		return err
	})
	if err := inTime(t, "extract", func() error {
		r, err := s.Run(ctx, run)
		if err != nil {
			return err
		}
		return r.Extract(ctx, filepath.Join(out, "run"))
	}); err == nil {
		t.Error("it was extracted")
	}
	v, err := Verdict{}, error(nil)
	_ = inTime(t, "verify", func() error { v, err = s.Verify(ctx, run); return err })
	if err == nil && (v.Verdict == Valid || !strings.Contains(v.Findings[0].Message, "no regular file")) {
		t.Errorf("verify says %s: %+v", v.Verdict, v.Findings)
	}
	if have, err := s.haveBlob(d, 1); have || err != nil {
		t.Errorf("have %t, %v", have, err)
	}
	if fresh, err := s.freshen(d); fresh || err != nil {
		t.Errorf("freshened %t, %v", fresh, err)
	}
	// gc and du either cannot go on, or say what they found; nothing is deleted.
	found := func(what string, list []schemas.Finding, err error) {
		t.Helper()
		if err == nil && !slices.ContainsFunc(list, func(f schemas.Finding) bool { return f.Blob == d }) {
			t.Errorf("%s does not tell", what)
		} else if err != nil && !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_ = inTime(t, "gc", func() error {
		r, err := s.Collect(ctx, GCOptions{Apply: true})
		if found("gc", r.Findings, err); len(r.Garbage) > 0 {
			t.Errorf("gc deleted %v", r.Garbage)
		}
		u, err := s.Usage(ctx)
		found("du", u.Findings, err)
		f, err := s.Fsck(ctx, FsckOptions{})
		found("fsck", f.Findings, err)
		return nil
	})
}

// The store's other files are given up with a clear error, and made anew.
func TestOddFiles(t *testing.T) {
	ctx := context.Background()
	for kind, make := range odds {
		for _, name := range []string{"oci-layout", indexName, recordIndexName, indexLockName, recordLockName, sweepLockName, gcLockName,
			cacheDir + "/blobs", cacheDir + "/files", cacheDir + "/lock", "assay/journals/r9.jsonl", leaseDir + "/r9.x.json"} {
			t.Run(kind+" for "+name, func(t *testing.T) {
				s := newStore(t)
				run := sealRun(t, s, "r1", "kept", smallStages())
				f, err := os.OpenFile(s.path(name), os.O_CREATE|os.O_RDWR, 0o644)
				if err == nil {
					err = f.Close()
				}
				if err := errors.Join(err, make(s.path(name))); err != nil {
					t.Fatal(err)
				}
				again, err := Open(s.Dir())
				if err != nil {
					t.Fatal(err)
				}
				tell := func(err error) {
					if err != nil && !errors.Is(err, durable.ErrNotRegular) {
						t.Errorf("not told what is wrong: %v", err)
					}
				}
				_ = inTime(t, "use", func() error {
					_, err := storeStage(t, again, "r2", "gen", map[string]string{"outputs/x/f": "new"})
					tell(err)
					_, err = again.Collect(ctx, GCOptions{Apply: true})
					tell(err)
					_, err = again.Usage(ctx)
					tell(err)
					_, err = again.Runs(ctx)
					tell(err)
					tell(again.Tag(ctx, "other", run))
					return nil
				})
				var r FsckReport
				_ = inTime(t, "fsck", func() error {
					if first := check(t, again, false); !strings.Contains(findingIDs(first), "type/error") || first.Sound {
						t.Errorf("fsck says %q", findingIDs(first))
					}
					r = check(t, again, true)
					return nil
				})
				if !slices.Contains(r.Quarantined, filepath.Base(name)) {
					t.Errorf("quarantined %v, want %s", r.Quarantined, filepath.Base(name))
				}
				if left := check(t, reopen(t, s.Dir()), false); !left.Sound {
					t.Errorf("after the repair: %+v", left.Findings)
				}
				wantListed(t, reopen(t, s.Dir()), run)
			})
		}
	}
}

// gc finds a torn blob to be garbage while another process writes it anew: what is
// written stays.
func TestTornBlobReplacedDuringGC(t *testing.T) {
	ctx := context.Background()
	content := []byte("what somebody stores while gc is at work")
	d := schemas.DigestOf(content)
	for name, store := range map[string]func(s *Store) error{
		"store": func(s *Store) error { _, err := s.putBytes(content); return err },
		"pull": func(s *Store) error {
			return s.PutBlob(ctx, d, int64(len(content)), io.NewSectionReader(strings.NewReader(string(content)), 0, int64(len(content))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			if err := os.WriteFile(s.blobPath(d), content[:5], 0o600); err != nil {
				t.Fatal(err)
			}
			age(t, s)
			other := reopen(t, s.Dir())
			stored := make(chan error, 1)
			// The hook comes between gc's look at the blob's time and its deletion.
			defer durable.SetHook(durable.SetHook(func(op durable.Op, path string) error {
				if op == durable.OpRemove && path == s.blobPath(d) {
					go func() { stored <- store(other) }()
					select {
					case err := <-stored:
						stored <- err
					case <-time.After(200 * time.Millisecond): // it waits for gc
					}
				}
				return nil
			}))
			if r, err := s.Collect(ctx, GCOptions{Apply: true}); err != nil || len(r.Garbage) != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			if err := <-stored; err != nil {
				t.Fatal(err)
			}
			if err := other.CheckBlob(ctx, d, int64(len(content))); err != nil {
				t.Errorf("gc deleted what was stored: %v", err)
			}
		})
	}
}

// A repair leaves a blob that was mended after it was found to be wrong.
func TestRepairLeavesWhatWasMended(t *testing.T) {
	s := newStore(t)
	content := []byte("mended in time")
	d, err := s.putBytes(content)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, s.blobPath(d))
	other := reopen(t, s.Dir())
	once := false
	defer durable.SetHook(durable.SetHook(func(op durable.Op, path string) error {
		if op == durable.OpMkdir && path == s.path(quarantineDir) && !once {
			once = true
			_, err := other.putBytes(content)
			return err
		}
		return nil
	}))
	if r := check(t, s, true); !once || len(r.Quarantined) != 0 {
		t.Errorf("quarantined %v", r.Quarantined)
	}
	if err := s.CheckBlob(context.Background(), d, int64(len(content))); err != nil {
		t.Error(err)
	}
}
