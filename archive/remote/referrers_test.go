package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"assay/schemas"
)

const noteType = "application/vnd.assay.test.note.v1+json"

// note is an attachment to a run.
func note(t testing.TB, run schemas.Digest, size int64, n int) Attachment {
	t.Helper()
	empty, text := []byte("{}"), []byte(fmt.Sprintf(`{"note":%d}`, n))
	b, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: mediaManifest, ArtifactType: noteType,
		Config:      descriptor{MediaType: "application/vnd.oci.empty.v1+json", Digest: schemas.DigestOf(empty), Size: 2},
		Layers:      []descriptor{{MediaType: noteType, Digest: schemas.DigestOf(text), Size: int64(len(text))}},
		Subject:     &descriptor{MediaType: mediaManifest, Digest: run, Size: size},
		Annotations: map[string]string{"n": fmt.Sprint(n)}})
	must(t, err)
	return Attachment{b, map[schemas.Digest][]byte{schemas.DigestOf(empty): empty, schemas.DigestOf(text): text}}
}

// attachMany attaches 20 notes at once; all of them must be listed.
func attachMany(t *testing.T, ref Reference, run schemas.Digest, size int64, o func() Options) {
	t.Helper()
	ctx := context.Background()
	const many = 20
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			if err := Attach(ctx, ref, note(t, run, size, i), o()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := Attachments(ctx, ref, run, noteType, o())
	must(t, err)
	seen := map[string]bool{}
	for _, a := range list {
		seen[a.Annotations["n"]] = true
		if a.ArtifactType != noteType {
			t.Errorf("attachment %s has artifactType %q", a.Digest, a.ArtifactType)
		}
	}
	if len(list) != many || len(seen) != many {
		t.Fatalf("%d attachments, %d different ones, want %d", len(list), len(seen), many)
	}
	got, err := FetchAttachment(ctx, ref, list[0].Digest, 1<<20, o())
	must(t, err)
	if len(got.Blobs) != 2 || schemas.DigestOf(got.Manifest) != list[0].Digest {
		t.Errorf("fetched %+v", got)
	}
	if _, err := FetchAttachment(ctx, ref, list[0].Digest, 5, o()); err == nil {
		t.Error("an attachment beyond the limit was fetched")
	}
	none, err := Attachments(ctx, ref, run, "application/other", o())
	if err != nil || len(none) != 0 {
		t.Errorf("attachments of another type: %v, %v", none, err)
	}
}

func TestAttachments(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 1))
	raw, err := s.ManifestBytes(run)
	must(t, err)
	for name, c := range map[string]struct {
		api   bool
		fault middleware
		tag   bool // the fallback tag is used
	}{
		"API":    {true, nil, false},
		"no API": {false, nil, true},
		"a header that lies": {false, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(rewriter{w, func(h http.Header) { h.Set("OCI-Subject", string(run)) }}, r)
		}, true},
		"a page instead of the API": {false, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.Contains(r.URL.Path, "/referrers/") {
				_, _ = w.Write([]byte("<html>hello</html>"))
				return
			}
			next.ServeHTTP(w, r)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, c.fault, registry.WithReferrersSupport(c.api))
			attachMany(t, l.ref("a/b"), run, int64(len(raw)), l.options)
			if used := l.count("PUT /v2/a/b/manifests/sha256-") > 0; used != c.tag {
				t.Errorf("fallback tag used: %v, want %v", used, c.tag)
			}
		})
	}
}

func TestRealAttachments(t *testing.T) {
	reg := startRegistry(t, "", "")
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 1))
	raw, err := s.ManifestBytes(run)
	must(t, err)
	ctx := context.Background()
	_, err = Push(ctx, s.Layout, run, reg.ref(t, "a/b:t"), PushOptions{Options: noLogin()})
	must(t, err)
	fast := func() Options {
		o := noLogin()
		o.tune.sleep = func(ctx context.Context, _ time.Duration) error { return sleep(ctx, 10*time.Millisecond) }
		return o
	}
	attachMany(t, reg.ref(t, "a/b"), run, int64(len(raw)), fast)
}

// TestOverwrittenList is another process that overwrites the index once.
func TestOverwrittenList(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(100, 1))
	raw, err := s.ManifestBytes(run)
	must(t, err)
	first := once(1)
	var l *lab
	l = newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(w, r)
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/sha256-") && first("put") {
			b := `{"schemaVersion":2,"mediaType":"` + mediaIndex + `","manifests":[]}`
			q, _ := http.NewRequest(http.MethodPut, r.URL.Path, strings.NewReader(b))
			q.Header.Set("Content-Type", mediaIndex)
			l.inner.ServeHTTP(discard{}, q)
		}
	})
	a := note(t, run, int64(len(raw)), 1)
	must(t, Attach(context.Background(), l.ref("a/b"), a, l.options()))
	list, err := Attachments(context.Background(), l.ref("a/b"), run, "", l.options())
	must(t, err)
	if len(list) != 1 || list[0].Digest != schemas.DigestOf(a.Manifest) {
		t.Errorf("attachments %+v, want the one attached", list)
	}
}
