package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"assay/archive"
	"assay/schemas"
)

const (
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
)

var acceptManifests = http.Header{"Accept": {mediaManifest, mediaIndex,
	"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json"}}

// document is a manifest or an index as it came.
type document struct {
	bytes  []byte
	media  string
	digest schemas.Digest // of the bytes
	etag   string
}

// getManifest fetches what name, a tag or a digest, stands for; its bytes are
// those of the digest, if one was asked for.
func (c *client) getManifest(ctx context.Context, name string) (document, error) {
	op := "read manifest " + name
	var doc document
	for n := 0; ; n++ {
		var err error
		doc, err = c.fetchManifest(ctx, op, name)
		if err == nil {
			break
		}
		var hung *stalledError
		if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, &hung) || n+1 >= attempts {
			return doc, err
		}
		if err := c.wait(ctx, pause(n), err.Error()); err != nil {
			return doc, err
		}
	}
	if d := schemas.Digest(name); d.Valid() && d != doc.digest {
		return doc, &archive.CorruptError{Blob: d, Err: fmt.Errorf("registry %s sent a manifest that hashes to %s", c.repo.RegistryStr(), doc.digest)}
	}
	return doc, nil
}

func (c *client) fetchManifest(ctx context.Context, op, name string) (document, error) {
	res, err := c.do(ctx, request{op: op, method: http.MethodGet, url: c.url("/manifests/%s", name), header: acceptManifests, ok: []int{http.StatusOK}})
	if err != nil {
		return document{}, err
	}
	defer closeAnswer(res)
	if isPage(res.Header) {
		return document{}, c.noRegistry(op, res.Header, nil)
	}
	doc, err := readManifest(res)
	if err != nil {
		return doc, fmt.Errorf("%s: registry %s: %w", op, c.repo.RegistryStr(), err)
	}
	var any map[string]json.RawMessage
	if err := json.Unmarshal(doc.bytes, &any); err != nil && !schemas.Digest(name).Valid() {
		return doc, c.noRegistry(op, res.Header, fmt.Errorf("what is no manifest: %w", err))
	}
	return doc, nil
}

func readManifest(res *http.Response) (document, error) {
	b, err := io.ReadAll(io.LimitReader(res.Body, archive.MaxManifestBytes+1))
	switch {
	case err != nil:
		return document{}, err
	case len(b) > archive.MaxManifestBytes:
		return document{}, fmt.Errorf("the manifest has more than the limit of %d bytes", archive.MaxManifestBytes)
	case res.ContentLength >= 0 && int64(len(b)) != res.ContentLength:
		return document{}, io.ErrUnexpectedEOF
	}
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	doc := document{bytes: b, media: strings.TrimSpace(media), digest: schemas.DigestOf(b), etag: res.Header.Get("ETag")}
	if said := res.Header.Get("Docker-Content-Digest"); schemas.Digest(said).Valid() && said != string(doc.digest) {
		return doc, &archive.CorruptError{Blob: schemas.Digest(said), Err: fmt.Errorf("the registry sent %d bytes for it that hash to %s", len(b), doc.digest)}
	}
	return doc, nil
}

// putManifest stores a manifest under a name, unless it is there, reads it back
// and compares. It returns what had the name before, "" for nothing.
func (c *client) putManifest(ctx context.Context, name, media string, b []byte) (schemas.Digest, error) {
	have, err := c.getManifest(ctx, name)
	if err == nil && bytes.Equal(have.bytes, b) {
		return "", nil
	}
	if err != nil && status(err) != http.StatusNotFound && !corrupt(err) {
		return "", err
	}
	damaged := corrupt(err)
	if err := c.sendManifest(ctx, name, media, b, nil); err != nil {
		return "", err
	}
	back, err := c.getManifest(ctx, name)
	if err != nil && !corrupt(err) {
		return "", fmt.Errorf("read back: %w", err)
	}
	if damaged && bytes.Equal(back.bytes, have.bytes) {
		return "", &archive.CorruptError{Blob: schemas.DigestOf(b), Err: fmt.Errorf("registry %s keeps a manifest for it that hashes to %s, and does not replace it: whoever runs it must delete it, then push again", c.repo.RegistryStr(), have.digest)}
	}
	if !bytes.Equal(back.bytes, b) {
		hint := "; --compat may help"
		if c.compat {
			hint = ""
		}
		return "", fmt.Errorf("read back manifest %s: registry %s has other bytes than were sent (%s instead of %s): it rewrites manifests, so it cannot keep a run%s",
			name, c.repo.RegistryStr(), back.digest, schemas.DigestOf(b), hint)
	}
	return have.digest, nil
}

func corrupt(err error) bool {
	var c *archive.CorruptError
	return errors.As(err, &c)
}

func (c *client) sendManifest(ctx context.Context, name, media string, b []byte, extra http.Header) error {
	h := extra.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", media)
	put := request{op: "push manifest " + name, method: http.MethodPut, url: c.url("/manifests/%s", name), header: h,
		body: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }, size: int64(len(b)),
		ok: []int{http.StatusCreated, http.StatusOK, http.StatusAccepted}}
	err := c.put(ctx, put, schemas.DigestOf(b))
	// While somebody else uploads one of its blobs again, a registry may not see it
	// for a moment.
	for n := 0; err != nil && blobUnknown(err) && n+1 < attempts; n++ {
		if serr := c.wait(ctx, pause(n), err.Error()); serr != nil {
			return serr
		}
		err = c.put(ctx, put, schemas.DigestOf(b))
	}
	return c.hintCompat(err)
}

func (c *client) put(ctx context.Context, r request, want schemas.Digest) error {
	res, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer closeAnswer(res)
	if got := res.Header.Get("Docker-Content-Digest"); strings.HasPrefix(got, "sha256:") && got != string(want) {
		return fmt.Errorf("%s: registry %s stored it as %s", r.op, c.repo.RegistryStr(), clean(got, nil))
	}
	return nil
}

func blobUnknown(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.has("MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN")
}

// hintCompat names the way out when a registry has rules about artifacts.
func (c *client) hintCompat(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Hint == "" {
		if blobUnknown(err) {
			e.Hint = "it said that it has every blob: push again"
			return err
		}
		switch e.Status {
		case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
			if !c.compat {
				e.Hint = "it may refuse artifact types or configs other than an image's: try --compat"
			}
		case http.StatusRequestEntityTooLarge:
			e.Hint = "the manifest is longer than it allows"
		}
	}
	return err
}

// descriptor is an OCI content descriptor, as far as it is needed here.
type descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       schemas.Digest    `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

// manifest is an OCI image manifest, as far as it is needed here.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Subject       *descriptor       `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

func parse(b []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}
