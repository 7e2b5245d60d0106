package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"assay/archive"
	"assay/schemas"
)

// What is attached to a run, a signature for one, is a manifest whose subject is
// the run. A registry with the referrers API lists it by itself. For one without,
// which a 404 of that API tells (headers are not to be relied on), the index under
// the tag sha256-<hex> is kept by whoever attaches. Registries hardly ever take
// that change under a condition, so this process changes it under a lock, under an
// ETag where one is given, and looks afterwards whether another process has
// overwritten it.

// Attachment is something that is attached to a run.
type Attachment struct {
	Manifest []byte // an OCI image manifest with a subject
	Blobs    map[schemas.Digest][]byte
}

// Attached is an attachment as a registry lists it.
type Attached struct {
	Digest       schemas.Digest
	Size         int64
	MediaType    string
	ArtifactType string
	Annotations  map[string]string
}

const (
	maxAttached  = 4096
	maxPages     = 64
	maxIndexTrys = 12
)

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

// Attach pushes an attachment to where its subject is, and makes sure that it is
// listed there.
func Attach(ctx context.Context, to Reference, a Attachment, o Options) error {
	m, err := parse(a.Manifest)
	if err == nil && (m.Subject == nil || !m.Subject.Digest.Valid() || m.MediaType != mediaManifest) {
		err = errors.New("it is no image manifest with a subject")
	}
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	fail := func(err error) error { return fmt.Errorf("attach to %s: %w", m.Subject.Digest.Short(), err) }
	c, err := dial(ctx, to, o, transport.PushScope)
	if err != nil {
		return fail(err)
	}
	p := &push{c: c}
	var list []archive.BlobRef
	for d, b := range a.Blobs {
		list = append(list, archive.BlobRef{Digest: d, Size: int64(len(b))})
	}
	if err := p.blobs(ctx, memory(a.Blobs), list); err != nil {
		return fail(err)
	}
	d := schemas.DigestOf(a.Manifest)
	if _, err := c.putManifest(ctx, string(d), mediaManifest, a.Manifest); err != nil {
		return fail(err)
	}
	if err := c.list(ctx, m.Subject.Digest, entryOf(document{bytes: a.Manifest, digest: d}, m)); err != nil {
		return fail(err)
	}
	return nil
}

// Attachments lists what is attached to a run; artifactType "" is any.
func Attachments(ctx context.Context, ref Reference, subject schemas.Digest, artifactType string, o Options) ([]Attached, error) {
	fail := func(err error) ([]Attached, error) {
		return nil, fmt.Errorf("attachments of %s: %w", subject.Short(), err)
	}
	c, err := dial(ctx, ref, o, transport.PullScope)
	if err != nil {
		return fail(err)
	}
	found, err := c.referrers(ctx, subject)
	if isMissing(err) {
		var x index
		if x, _, err = c.fallback(ctx, subject); err == nil {
			found = x.Manifests
		}
	}
	if err != nil {
		return fail(err)
	}
	out := []Attached{}
	for _, d := range found {
		if d.Digest.Valid() && d.ArtifactType != artifactType {
			// Some lists lack the type, or give the config's.
			if d, err = c.describe(ctx, d); err != nil {
				return fail(err)
			}
		}
		// The registry may or may not have filtered.
		if d.Digest.Valid() && (artifactType == "" || d.ArtifactType == artifactType) {
			out = append(out, Attached{d.Digest, d.Size, d.MediaType, d.ArtifactType, d.Annotations})
		}
	}
	return out, nil
}

// describe takes what a list says of an attachment from the attachment itself.
func (c *client) describe(ctx context.Context, d descriptor) (descriptor, error) {
	doc, err := c.getManifest(ctx, string(d.Digest))
	if isMissing(err) {
		return descriptor{}, nil // dropped, but still listed
	}
	if err != nil {
		return d, err
	}
	m, err := parse(doc.bytes)
	if err != nil {
		return d, err
	}
	return entryOf(doc, m), nil
}

func entryOf(doc document, m manifest) descriptor {
	kind := m.ArtifactType
	if kind == "" {
		kind = m.Config.MediaType
	}
	return descriptor{MediaType: mediaManifest, Digest: doc.digest, Size: int64(len(doc.bytes)), ArtifactType: kind, Annotations: m.Annotations}
}

// FetchAttachment returns an attachment, checked against its digest. Its blobs
// together may have at most limit bytes.
func FetchAttachment(ctx context.Context, ref Reference, d schemas.Digest, limit int64, o Options) (Attachment, error) {
	fail := func(err error) (Attachment, error) {
		return Attachment{}, fmt.Errorf("fetch attachment %s: %w", d.Short(), err)
	}
	c, err := dial(ctx, ref, o, transport.PullScope)
	if err != nil {
		return fail(err)
	}
	doc, err := c.getManifest(ctx, string(d))
	if err != nil {
		return fail(err)
	}
	m, err := parse(doc.bytes)
	if err != nil {
		return fail(err)
	}
	a := Attachment{Manifest: doc.bytes, Blobs: map[schemas.Digest][]byte{}}
	for _, b := range append([]descriptor{m.Config}, m.Layers...) {
		if limit -= b.Size; b.Size < 0 || limit < 0 || !b.Digest.Valid() {
			return fail(fmt.Errorf("blob %s of %d bytes is not well formed or too long", b.Digest, b.Size))
		}
		if a.Blobs[b.Digest], err = c.fetchSmall(ctx, archive.BlobRef{Digest: b.Digest, Size: b.Size}); err != nil {
			return fail(err)
		}
	}
	return a, nil
}

func isMissing(err error) bool { return status(err) == http.StatusNotFound }

// referrers asks the API; a 404 says that there is none.
func (c *client) referrers(ctx context.Context, subject schemas.Digest) ([]descriptor, error) {
	var out []descriptor
	at := c.url("/referrers/%s", subject)
	for range maxPages {
		x, next, err := c.referrersPage(ctx, subject, at)
		if err != nil {
			return nil, err
		}
		if out = append(out, x.Manifests...); len(out) > maxAttached {
			return nil, fmt.Errorf("more than %d attachments", maxAttached)
		}
		if at = next; at == "" {
			return out, nil
		}
	}
	return nil, fmt.Errorf("more than %d pages of attachments", maxPages)
}

func (c *client) referrersPage(ctx context.Context, subject schemas.Digest, at string) (index, string, error) {
	res, err := c.do(ctx, request{op: "list attachments of " + subject.Short(), method: http.MethodGet, url: at, header: http.Header{"Accept": {mediaIndex}}, ok: []int{http.StatusOK}})
	if err != nil {
		return index{}, "", err
	}
	defer closeAnswer(res)
	link, base := res.Header.Get("Link"), res.Request.URL
	doc, err := readManifest(res)
	if err != nil {
		return index{}, "", err
	}
	x, err := parseIndex(doc)
	if err != nil {
		// Something else than the API answers under this address.
		return index{}, "", &Error{Op: "list attachments of " + subject.Short(), Registry: c.repo.RegistryStr(), Status: http.StatusNotFound}
	}
	return x, nextPage(base, link), nil
}

// nextPage reads `<address>; rel="next"`, only on the same host.
func nextPage(base *url.URL, link string) string {
	target, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(link), "<"), ">")
	if !ok || !strings.Contains(rest, `rel="next"`) {
		return ""
	}
	u, err := base.Parse(target)
	if err != nil || u.Host != base.Host || u.Scheme != base.Scheme {
		return ""
	}
	return u.String()
}

func parseIndex(doc document) (index, error) {
	var x index
	if doc.media != mediaIndex {
		return x, fmt.Errorf("it is %q, not an image index", clean(doc.media, nil))
	}
	if err := json.Unmarshal(doc.bytes, &x); err != nil {
		return x, fmt.Errorf("image index: %w", err)
	}
	if x.SchemaVersion != 2 || len(x.Manifests) > maxAttached {
		return x, fmt.Errorf("image index: schemaVersion %d with %d entries is not well formed", x.SchemaVersion, len(x.Manifests))
	}
	return x, nil
}

func fallbackTag(subject schemas.Digest) string { return "sha256-" + subject.Hex() }

// fallback reads the index under the fallback tag; a missing one is empty.
func (c *client) fallback(ctx context.Context, subject schemas.Digest) (index, string, error) {
	empty := index{SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{}}
	doc, err := c.getManifest(ctx, fallbackTag(subject))
	if isMissing(err) {
		return empty, "", nil
	}
	if err != nil {
		return empty, "", err
	}
	x, err := parseIndex(doc)
	if err != nil {
		return empty, "", fmt.Errorf("tag %s: %w", fallbackTag(subject), err)
	}
	return x, doc.etag, nil
}

func (x index) has(d schemas.Digest) bool {
	for _, m := range x.Manifests {
		if m.Digest == d {
			return true
		}
	}
	return false
}

// indexLocks hold apart what this process changes under one fallback tag.
var indexLocks sync.Map

// list makes sure that an attachment is listed.
func (c *client) list(ctx context.Context, subject schemas.Digest, entry descriptor) error {
	for n := range 3 {
		found, err := c.referrers(ctx, subject)
		if isMissing(err) {
			return c.listByTag(ctx, subject, entry)
		}
		if err != nil {
			return err
		}
		if (index{Manifests: found}).has(entry.Digest) {
			return nil
		}
		if err := c.wait(ctx, pause(n), "the registry does not list the attachment yet"); err != nil {
			return err
		}
	}
	return fmt.Errorf("registry %s took it, but its referrers API does not list it", c.repo.RegistryStr())
}

func (c *client) listByTag(ctx context.Context, subject schemas.Digest, entry descriptor) error {
	lock, _ := indexLocks.LoadOrStore(c.repo.Name()+"@"+string(subject), &sync.Mutex{})
	mu := lock.(*sync.Mutex)
	mu.Lock()
	defer mu.Unlock()
	seen := false
	for n := range maxIndexTrys {
		x, etag, err := c.fallback(ctx, subject)
		if err != nil {
			return err
		}
		if x.has(entry.Digest) {
			if seen || n == 0 {
				return nil
			}
			// Another process may have read the index before it was changed: look
			// once more when it has written.
			seen = true
		} else if err := c.putIndex(ctx, subject, x, entry, etag); err != nil {
			return err
		} else {
			seen = false
			continue
		}
		if err := c.tune.sleep(ctx, pause(0)); err != nil {
			return err
		}
	}
	return fmt.Errorf("tag %s: other processes have overwritten the list %d times: attach again", fallbackTag(subject), maxIndexTrys)
}

func (c *client) putIndex(ctx context.Context, subject schemas.Digest, x index, entry descriptor, etag string) error {
	x.Manifests = append(x.Manifests, entry)
	b, err := json.Marshal(x)
	if err != nil {
		return err
	}
	if len(b) > archive.MaxManifestBytes {
		return fmt.Errorf("tag %s: the list of attachments would have %d bytes, more than the limit of %d", fallbackTag(subject), len(b), archive.MaxManifestBytes)
	}
	var cond http.Header
	if etag != "" {
		cond = http.Header{"If-Match": {etag}}
	}
	err = c.sendManifest(ctx, fallbackTag(subject), mediaIndex, b, cond)
	if status(err) == http.StatusPreconditionFailed {
		return nil // someone else was first: read again
	}
	return err
}
