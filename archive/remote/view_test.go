package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"assay/archive"
	"assay/schemas"
)

func view(t testing.TB, ref Reference, o Options) *View {
	t.Helper()
	v, err := Open(context.Background(), ref, t.TempDir(), o)
	must(t, err)
	return v
}

func (r realRegistry) blobPath(d schemas.Digest) string {
	return filepath.Join(r.dir, "docker/registry/v2/blobs/sha256", d.Hex()[:2], d.Hex(), "data")
}

// TestViewFindings damages each blob of a run in a registry and in the store:
// verify finds the same in both.
func TestViewFindings(t *testing.T) {
	reg := startRegistry(t, "", "")
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 3))
	ctx := context.Background()
	at := reg.ref(t, "lab/runs:base")
	_, err := Push(ctx, s.Layout, run, at, PushOptions{Options: noLogin()})
	must(t, err)
	want, err := s.Verify(ctx, run)
	must(t, err)
	got, err := view(t, at, noLogin()).Layout.Verify(ctx, run)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" || got.Verdict != archive.Valid {
		t.Fatalf("undamaged: %s", diff)
	}
	for _, b := range append(blobsOf(t, s, run), archive.BlobRef{Digest: run}) {
		for name, damage := range map[string]func(path string) error{
			"flipped": func(path string) error { flip(t, path); return nil },
			"cut":     func(path string) error { return os.Truncate(path, 100) },
			"missing": os.Remove,
		} {
			if b.Digest == run && name != "flipped" {
				continue // the registry does not answer for such a manifest
			}
			t.Run(name+" "+strings.TrimPrefix(b.MediaType, "application/vnd.assay."), func(t *testing.T) {
				verdicts := map[string]archive.Verdict{}
				for where, path := range map[string]string{"registry": reg.blobPath(b.Digest), "store": filepath.Join(s.Dir(), "blobs/sha256", b.Digest.Hex())} {
					keep, err := os.ReadFile(path)
					must(t, err)
					must(t, os.Chmod(path, 0o644))
					must(t, damage(path))
					l := s.Layout
					if where == "registry" {
						v := view(t, at, noLogin())
						if l = v.Layout; v.Run != run {
							t.Errorf("the run is %s, want %s", v.Run, run)
						}
						defer func() {
							if v.Err() != nil {
								t.Errorf("not read: %v", v.Err())
							}
						}()
					}
					verdicts[where], err = l.Verify(ctx, run)
					must(t, err)
					must(t, os.WriteFile(path, keep, 0o644))
				}
				if diff := cmp.Diff(verdicts["store"], verdicts["registry"], cmpopts.IgnoreFields(schemas.Finding{}, "Message", "Remedy")); diff != "" {
					t.Errorf("store and registry differ: %s", diff)
				}
				if f := verdicts["registry"].Findings; verdicts["registry"].Verdict != archive.Invalid || len(f) == 0 || f[0].Blob == "" || f[0].Run != string(run) {
					t.Errorf("findings %+v", f)
				}
			})
		}
	}
}

// TestViewFetchesWhatIsAsked reads documents and a file of a run with a large
// blob, which stays where it is.
func TestViewFetchesWhatIsAsked(t *testing.T) {
	s := newStore(t)
	first := sealRun(t, s, "first", someFiles(5000, 1))
	run := sealRun(t, s, "second", someFiles(bigFile, 2), first)
	l := newLab(t, nil)
	ctx := context.Background()
	_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
	must(t, err)
	blobs := blobsOf(t, s, run)
	big := blobs[0]
	for _, b := range blobs {
		if b.Size > big.Size {
			big = b
		}
	}
	v := view(t, l.ref("a/b:t"), l.options())
	r, err := v.Layout.Ref("x", v.Run).Run(ctx)
	must(t, err)
	var small string
	for _, e := range r.Files.Entries {
		if strings.HasSuffix(e.Path, "r.csv") {
			small = e.Path
		}
	}
	for range 3 {
		f, err := r.OpenFile(ctx, small)
		must(t, err)
		b, err := io.ReadAll(f)
		must(t, err)
		if string(b) != "a,b\n1,2\n" {
			t.Errorf("%s is %q", small, b)
		}
	}
	if n := l.count("GET /v2/a/b/blobs/" + string(big.Digest)); n != 0 {
		t.Errorf("the large blob was fetched %d times", n)
	}
	for _, b := range blobs {
		if n := l.count("GET /v2/a/b/blobs/" + string(b.Digest)); n > 1 {
			t.Errorf("%s blob was fetched %d times", b.MediaType, n)
		}
	}
	// Everything, with the source run; and from registry to registry.
	saved, err := v.Layout.SaveTar(ctx, run, "", filepath.Join(t.TempDir(), "a.tar"))
	must(t, err)
	if len(saved.Runs) != 2 || len(saved.Missing) != 0 {
		t.Errorf("saved %+v, want both runs", saved)
	}
	other := newLab(t, nil)
	pushed, err := Push(ctx, v.Layout, run, other.ref("c/d:t"), PushOptions{Options: other.options()})
	must(t, err)
	if len(pushed.Sources) != 1 {
		t.Errorf("pushed %+v, want the source run with it", pushed)
	}
	into := newStore(t)
	_, err = Pull(ctx, into, other.ref("c/d:t"), PullOptions{Options: other.options()})
	must(t, err)
	wantValid(t, into, run)
}

// TestViewLongBlobs streams a blob that is too long to be kept, and goes into its
// middle without fetching what is before.
func TestViewLongBlobs(t *testing.T) {
	const size = spoolOne + 1000
	var from []string
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		from = append(from, r.Header.Get("Range"))
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if r.Header.Get("Range") != "" {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(http.StatusPartialContent)
		}
		_, _ = w.Write([]byte("0123456789"))
	})
	c, err := dial(context.Background(), l.ref("a/b"), l.options(), "pull")
	must(t, err)
	d := schemas.DigestOf([]byte("x"))
	b := archive.BlobRef{Digest: d, Size: size}
	dir := t.TempDir()
	v := &View{ctx: context.Background(), c: c, blobs: map[schemas.Digest]located{d: {b, b}}}
	v.spool = v.newSpool(dir)
	r, n, err := v.OpenBlob(d)
	must(t, err)
	if n != size {
		t.Errorf("%d bytes, want %d", n, size)
	}
	_, err = r.(io.Seeker).Seek(size-10, io.SeekStart)
	must(t, err)
	got, err := io.ReadAll(r)
	must(t, err)
	if want := fmt.Sprintf("bytes=%d-%d", size-10, size-1); string(got) != "0123456789" || from[len(from)-1] != want {
		t.Errorf("%q from %q, want %q", got, from[len(from)-1], want)
	}
	if kept, err := os.ReadDir(dir); err != nil || len(kept) > 0 {
		t.Errorf("kept %v, %v", kept, err)
	}
}

// TestViewUnreachable is a registry that goes away: that is no fault of the run.
func TestViewUnreachable(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 6))
	away := false
	asked := 0
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if away && isBlob(r) {
			asked++
			refuse(w, 503, "UNAVAILABLE", "gone")
			return
		}
		next.ServeHTTP(w, r)
	})
	ctx := context.Background()
	_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
	must(t, err)
	v := view(t, l.ref("a/b:t"), l.options())
	away = true
	verdict, err := v.Layout.Verify(ctx, run)
	must(t, err)
	if verdict.Verdict != archive.Unknown || !errors.Is(v.Err(), archive.ErrUnreachable) || status(v.Err()) != 503 {
		t.Errorf("verdict %+v, error %v: want unknown", verdict, v.Err())
	}
	if asked > attempts {
		t.Errorf("it was asked %d times, want %d", asked, attempts)
	}
	if _, _, err := v.OpenBlob(schemas.DigestOf([]byte("other"))); !errors.Is(err, archive.ErrUnreachable) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
