package remote

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/url"
	"testing"

	"assay/archive"
	"assay/schemas"
)

// FuzzWrapper reads images that may wrap a run, and layers that another tool may
// have compressed.
func FuzzWrapper(f *testing.F) {
	run := []byte(`{"schemaVersion":2}`)
	wrapper, config, err := wrap(run, []archive.BlobRef{{MediaType: archive.MediaPart, Digest: someDigest, Size: 3}})
	if err != nil {
		f.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(run)
	_ = z.Close()
	f.Add(wrapper, config, packed.Bytes())
	f.Add(wrapper, []byte(`{"config":{"Labels":{"vnd.assay.wrapped.run":"x"}}}`), []byte("\x28\xb5\x2f\xfd"))
	f.Add([]byte(`{"config":{"mediaType":"`+archive.MediaImageConfig+`"}}`), config, []byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, manifest, config, layer []byte) {
		w := archive.ParseWrapper(manifest)
		if w == nil {
			return
		}
		ok, err := w.Learn(config)
		if err != nil || !ok {
			return
		}
		b := archive.BlobRef{Digest: w.Run, Size: 1000}
		at, err := w.Layer(b)
		if err != nil || !w.Run.Valid() || !at.Digest.Valid() {
			t.Fatalf("run %q lies in %+v: %v", w.Run, at, err)
		}
		if _, err := w.Layer(archive.BlobRef{Digest: "sha256:none"}); err == nil {
			t.Error("it has a layer for what is no digest")
		}
		plain, err := archive.Unpack(at, b, bytes.NewReader(layer))
		if err != nil {
			return
		}
		if n, _ := io.Copy(io.Discard, plain); at.Digest != b.Digest && n > b.Size+1 {
			t.Errorf("%d bytes came out, want at most %d", n, b.Size+1)
		}
		_ = plain.Close()
	})
}

// FuzzList reads lists of attachments and where they go on.
func FuzzList(f *testing.F) {
	f.Add(mediaIndex, []byte(`{"schemaVersion":2,"manifests":[{"digest":"`+someDigest+`"}]}`), `</v2/a/b/referrers/x?n=1>; rel="next"`)
	f.Add("text/html", []byte(`<html>`), `<https://elsewhere.example/x>; rel="next"`)
	f.Add(mediaIndex, []byte(`{"schemaVersion":2}`), `<//elsewhere.example>; rel="next"`)
	base, err := url.Parse("https://reg.example/v2/a/b/referrers/x")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, media string, body []byte, link string) {
		if next := nextPage(base, link); next != "" {
			if u, err := url.Parse(next); err != nil || u.Host != base.Host || u.Scheme != base.Scheme {
				t.Errorf("link %q leads to %q, %v", link, next, err)
			}
		}
		x, err := parseIndex(document{bytes: body, media: media})
		if err == nil && (x.SchemaVersion != 2 || len(x.Manifests) > maxAttached) {
			t.Errorf("%q is taken as %+v", body, x)
		}
		x.has(schemas.Digest(someDigest))
	})
}
