package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"assay/archive"
	"assay/schemas"
)

// refuseArtifacts is a registry that takes images only.
func refuseArtifacts(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if isManifest(r) && r.Method == http.MethodPut {
		b, err := io.ReadAll(r.Body)
		var m manifest
		if err != nil || json.Unmarshal(b, &m) != nil {
			refuse(w, 400, "MANIFEST_INVALID", "not JSON")
			return
		}
		if m.ArtifactType != "" || m.Config.MediaType != archive.MediaImageConfig {
			refuse(w, 415, "MANIFEST_INVALID", "artifactType is not allowed here")
			return
		}
		for _, l := range m.Layers {
			if l.MediaType != mediaLayer && l.MediaType != mediaLayerZstd {
				refuse(w, 415, "MANIFEST_INVALID", "layers are not allowed here")
				return
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(b))
	}
	next.ServeHTTP(w, r)
}

// rewriteManifests is a registry that reformats what it gets.
func rewriteManifests(w http.ResponseWriter, r *http.Request, next http.Handler) {
	rec := httptest.NewRecorder()
	next.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	if isManifest(r) && r.Method == http.MethodGet && rec.Code == 200 {
		body = append(body, '\n')
		rec.Header().Del("Docker-Content-Digest")
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body)
}

// TestCompat pushes to a registry that takes images only. The run that comes
// back is the same.
func TestCompat(t *testing.T) {
	s := newStore(t)
	first := sealRun(t, s, "first", someFiles(5000, 1))
	run := sealRun(t, s, "second", someFiles(bigFile, 2), first)
	l := newLab(t, refuseArtifacts)
	pushed, pulled, _ := there(t, l, s, run, PushOptions{Compat: true})
	if pushed.Stored == run || len(pulled.Sources) != 1 {
		t.Errorf("pushed %+v, pulled %+v: want a wrapper, and the source run", pushed, pulled)
	}
	ctx := context.Background()
	for _, d := range []schemas.Digest{run, pushed.Stored} {
		got, err := Check(ctx, l.ref("lab/runs@"+string(d)), l.options())
		if err != nil || got != run {
			t.Errorf("reference to %s: %s, %v, want %s", d, got, err, run)
		}
	}
	again, err := Push(ctx, s.Layout, run, l.ref("lab/runs:base"), PushOptions{Options: l.options(), Compat: true})
	if err != nil || again.BytesMoved != 0 || again.Stored != pushed.Stored {
		t.Errorf("again: %+v, %v: want the same wrapper and nothing moved", again, err)
	}
}

// TestHostilePulls are registries that send something else. Nothing of it
// becomes a run.
func TestHostilePulls(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 7))
	raw, err := s.ManifestBytes(run)
	must(t, err)
	blobs, err := archive.ManifestBlobs(raw)
	must(t, err)
	last := blobs[len(blobs)-1]
	blobBody := func(change func([]byte) []byte) middleware {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !strings.HasSuffix(r.URL.Path, "/blobs/"+string(last.Digest)) || r.Method != http.MethodGet {
				next.ServeHTTP(w, r)
				return
			}
			rec := httptest.NewRecorder()
			r.Header.Del("Range")
			next.ServeHTTP(rec, r)
			_, _ = w.Write(change(rec.Body.Bytes()))
		}
	}
	manifestBody := func(change func([]byte) []byte) middleware {
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if !isManifest(r) || r.Method != http.MethodGet {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", mediaManifest)
			_, _ = w.Write(change(bytes.Clone(raw)))
		}
	}
	// wrapperBody gives a wrapper of the run, and its config.
	wrapperBody := func(size int64, layers ...schemas.Digest) middleware {
		config := wrapperConfig(layers...)
		manifest := manifestBody(func([]byte) []byte { return wrapperOf(run, size, layers...) })
		return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if strings.HasSuffix(r.URL.Path, "/blobs/"+string(schemas.DigestOf(config))) {
				_, _ = w.Write(config)
				return
			}
			manifest(w, r, next)
		}
	}
	text := func(from, to string) func([]byte) []byte {
		return func(b []byte) []byte {
			if !bytes.Contains(b, []byte(from)) {
				t.Errorf("the manifest has no %s", from)
			}
			return bytes.Replace(b, []byte(from), []byte(to), 1)
		}
	}
	for name, c := range map[string]struct {
		fault   middleware
		ref     string
		want    string
		corrupt bool
	}{
		"a flipped bit":        {blobBody(func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), "a/b:t", string(last.Digest), true},
		"a blob cut short":     {blobBody(func(b []byte) []byte { return b[:len(b)-1] }), "a/b:t", last.Digest.Short(), false}, // it may come yet: the registry is asked for the rest
		"a blob too long":      {blobBody(func(b []byte) []byte { return append(b, 0) }), "a/b:t", string(last.Digest), true},
		"manifest over 4 MiB":  {manifestBody(func(b []byte) []byte { return append(b, bytes.Repeat([]byte(" "), 4<<20)...) }), "a/b:t", "limit of 4194304", false},
		"another manifest":     {manifestBody(text(`"schemaVersion":2`, `"schemaVersion": 2`)), "a/b@" + string(run), "hashes to", true},
		"a tag of its own":     {manifestBody(text(`"vnd.assay.run.status"`, `"org.opencontainers.image.ref.name":"latest","vnd.assay.run.status"`)), "a/b:t", "annotations", false},
		"no artifact":          {manifestBody(text(archive.ArtifactType, "application/x")), "a/b:t", "no assay run", true},
		"an unknown layer":     {manifestBody(text(archive.MediaFiles, "application/x")), "a/b:t", "unknown media type", true},
		"no JSON":              {manifestBody(func([]byte) []byte { return []byte("<html>") }), "a/b:t", "manifest", false},
		"a wrapper of nothing": {wrapperBody(100), "a/b:t", "first layer", true},
		"a wrapper too long":   {wrapperBody(5<<20, run), "a/b:t", "limit of 4194304", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			armed := false
			l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if armed {
					c.fault(w, r, next)
					return
				}
				next.ServeHTTP(w, r)
			})
			ctx := context.Background()
			_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), PushOptions{Options: l.options()})
			must(t, err)
			armed = true
			into := newStore(t)
			_, err = Pull(ctx, into, l.ref(c.ref), PullOptions{Options: l.options()})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			var corrupt *archive.CorruptError
			if errors.As(err, &corrupt) != c.corrupt {
				t.Errorf("error %v: corrupt is %v, want %v", err, !c.corrupt, c.corrupt)
			}
			runs, err := into.Runs(ctx)
			must(t, err)
			if len(runs) != 0 {
				t.Errorf("runs %+v are in the store", runs)
			}
		})
	}
}

func wrapperConfig(layers ...schemas.Digest) []byte {
	b, _ := json.Marshal(map[string]any{"rootfs": map[string]any{"diff_ids": layers}})
	return b
}

func wrapperOf(run schemas.Digest, size int64, layers ...schemas.Digest) []byte {
	config := wrapperConfig(layers...)
	m := manifest{SchemaVersion: 2, MediaType: mediaManifest, Annotations: map[string]string{archive.WrappedRun: string(run)},
		Config: descriptor{MediaType: archive.MediaImageConfig, Digest: schemas.DigestOf(config), Size: int64(len(config))}}
	for _, d := range layers {
		m.Layers = append(m.Layers, descriptor{MediaType: mediaLayer, Digest: d, Size: size})
	}
	b, _ := json.Marshal(m)
	return b
}

// TestPullRepairs pulls into a store whose copy of a blob is damaged.
func TestPullRepairs(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 8))
	l := newLab(t, nil)
	_, _, into := there(t, l, s, run, PushOptions{})
	raw, err := s.ManifestBytes(run)
	must(t, err)
	blobs, err := archive.ManifestBlobs(raw)
	must(t, err)
	flip(t, into.Dir()+"/blobs/sha256/"+blobs[len(blobs)-1].Digest.Hex())
	out, err := Pull(context.Background(), into, l.ref("lab/runs:base"), PullOptions{Options: l.options()})
	must(t, err)
	if out.BlobsMoved != 1 {
		t.Errorf("%d blobs fetched, want the damaged one", out.BlobsMoved)
	}
	wantValid(t, into, run)
}

// TestPushReplaces pushes again to a registry that takes the right bytes for a
// blob that it kept badly.
func TestPushReplaces(t *testing.T) {
	s := newStore(t)
	run := sealRun(t, s, "run", someFiles(bigFile, 9))
	blobs := blobsOf(t, s, run)
	damaged := map[string]bool{}
	var mu sync.Mutex
	l := newLab(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		mu.Lock()
		defer mu.Unlock()
		switch d := r.URL.Query().Get("digest"); {
		case r.Method == http.MethodPut && isUpload(r):
			delete(damaged, d)
		case r.Method == http.MethodGet && isBlob(r) && damaged[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]:
			_, _ = w.Write([]byte("something else"))
			return
		}
		next.ServeHTTP(w, r)
	})
	o := PushOptions{Options: l.options(), Check: true}
	var last Progress
	o.Progress = func(p Progress) { last = p }
	ctx := context.Background()
	_, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), o)
	must(t, err)
	for _, b := range blobs[:2] {
		damaged[string(b.Digest)] = true
	}
	out, err := Push(ctx, s.Layout, run, l.ref("a/b:t"), o)
	must(t, err)
	if out.BlobsMoved != 2 || out.BlobsChecked != len(blobs) || len(damaged) != 0 {
		t.Errorf("%+v: want 2 blobs sent again", out)
	}
	if last.Done != last.Total || last.Total != 2*out.Bytes {
		t.Errorf("progress ends at %+v, want %d", last, 2*out.Bytes)
	}
}
