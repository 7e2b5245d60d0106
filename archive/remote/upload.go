package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"assay/archive"
	"assay/schemas"
)

// fate is what became of a blob that was to be in the registry.
type fate int

const (
	sent fate = iota
	present
	mounted
)

// blobs gives the bytes of blobs; a body is opened again for each attempt.
type blobs interface {
	OpenBlob(d schemas.Digest, offset int64) (io.ReadCloser, int64, error)
}

// upload brings one blob into the repository.
type upload struct {
	c        *client
	from     blobs
	blob     archive.BlobRef
	mount    []string // repositories of the registry that may have the blob
	sessions *sessions
	chunk    int64

	// A connection may still read an old body while the next one is open: only
	// what the newest takes counts as moved.
	mu     sync.Mutex
	newest int
	moved  int64 // bytes that count as moved
	sent   int64 // bytes that went over the line
}

func (u *upload) op() string { return "push blob " + u.blob.Digest.Short() }

func (u *upload) run(ctx context.Context) (fate, error) {
	has, other, err := u.c.hasBlob(ctx, u.blob)
	if err != nil {
		return sent, err
	}
	if other {
		// It has something else under this digest: what becomes of the right bytes
		// must be seen.
		return u.replace(ctx)
	}
	if has {
		if u.blob.Size > u.c.tune.whole {
			u.forget() // it was finished by a push that was killed then
		}
		return present, nil
	}
	if u.blob.Size > u.c.tune.whole {
		if done, err := u.takeUp(ctx); done || err != nil {
			return sent, err
		}
	}
	at := ""
	for _, from := range u.mount {
		var done bool
		if at, done, err = u.start(ctx, from); err != nil {
			return sent, err
		}
		if done {
			return mounted, nil
		}
	}
	// Where mounting failed, the last answer's session serves for the upload.
	return sent, u.transfer(ctx, at)
}

// replace sends a blob in whose place the registry has another, and looks.
func (u *upload) replace(ctx context.Context) (fate, error) {
	if err := u.transfer(ctx, ""); err != nil {
		return sent, err
	}
	return sent, u.c.readBack(ctx, u.blob, func(int64) {})
}

// hasBlob asks before anything is sent. other says that the registry tells another
// length for it.
func (c *client) hasBlob(ctx context.Context, b archive.BlobRef) (has, other bool, err error) {
	res, err := c.do(ctx, request{op: "look for blob " + b.Digest.Short(), method: http.MethodHead, url: c.url("/blobs/%s", b.Digest),
		ok: []int{http.StatusOK, http.StatusNotFound, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed}})
	if err != nil {
		return false, false, err
	}
	defer closeAnswer(res)
	// An answer to HEAD cannot give a reason. The upload that follows is refused
	// with one, if it is.
	has = res.StatusCode == http.StatusOK
	other = has && res.ContentLength >= 0 && res.ContentLength != b.Size
	return has && !other, other, nil
}

// start opens an upload session, or has the blob mounted from another repository.
func (u *upload) start(ctx context.Context, mountFrom string) (at string, done bool, err error) {
	address := u.c.url("/blobs/uploads/")
	if mountFrom != "" {
		address += "?" + url.Values{"mount": {string(u.blob.Digest)}, "from": {mountFrom}}.Encode()
	}
	res, err := u.c.do(ctx, request{op: u.op(), method: http.MethodPost, url: address, body: noBody, ok: []int{http.StatusAccepted, http.StatusCreated}})
	if err != nil {
		return "", false, err
	}
	defer closeAnswer(res)
	if res.StatusCode == http.StatusCreated {
		return "", mountFrom != "", u.checkDigest(res)
	}
	at, err = location(res)
	if err != nil {
		return "", false, fmt.Errorf("%s: registry %s: %w", u.op(), u.c.repo.RegistryStr(), err)
	}
	if n, err := strconv.ParseInt(res.Header.Get("OCI-Chunk-Min-Length"), 10, 64); err == nil && n > u.chunk && n <= 1<<30 {
		u.chunk = n
	}
	return at, false, nil
}

func noBody() (io.ReadCloser, error) { return http.NoBody, nil }

// location is where to go on: absolute, or relative to what was asked. Its query
// is the registry's own and is kept as it is.
func location(res *http.Response) (string, error) {
	text := res.Header.Get("Location")
	if text == "" {
		return "", errors.New("the answer to an upload has no Location")
	}
	at, err := res.Request.URL.Parse(text)
	if err != nil || at.Host == "" {
		return "", errors.New("the answer to an upload has a Location that is no address")
	}
	return at.String(), nil
}

// closing adds the digest to a session's address without touching the rest.
func closing(at string, d schemas.Digest) string {
	sep := "?"
	if strings.Contains(at, "?") {
		sep = "&"
	}
	return at + sep + "digest=" + url.QueryEscape(string(d))
}

// transfer sends the blob from the beginning; when the registry loses it, again.
func (u *upload) transfer(ctx context.Context, at string) error {
	for n := 0; ; n++ {
		err := u.attempt(ctx, at)
		if ctx.Err() != nil {
			return err // what is noted serves the next push
		}
		u.forget()
		if err == nil {
			return nil
		}
		u.takeBack()
		if n+1 >= blobAttempts || !lostSession(err) {
			return u.blame(ctx, err)
		}
		at = ""
	}
}

func (u *upload) attempt(ctx context.Context, at string) (err error) {
	if at == "" {
		if at, _, err = u.start(ctx, ""); err != nil || at == "" {
			return err
		}
	}
	if u.blob.Size <= u.c.tune.whole {
		return u.whole(ctx, at)
	}
	return u.pieces(ctx, at, 0)
}

// lostSession says that only the session is gone: the blob can be sent anew.
func lostSession(err error) bool {
	var gone *lostUpload
	if errors.As(err, &gone) {
		return true
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Status == http.StatusNotFound || e.Status == http.StatusRequestedRangeNotSatisfiable ||
		e.has("BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID", "DIGEST_INVALID", "SIZE_INVALID")
}

// lostUpload is an upload that broke off and that the registry cannot go on with.
type lostUpload struct{ error }

func (e *lostUpload) Unwrap() error { return e.error }

// blame looks at our own bytes when the registry says that they are wrong.
func (u *upload) blame(ctx context.Context, err error) error {
	var e *Error
	if l, ok := u.from.(*archive.Layout); ok && errors.As(err, &e) && e.has("DIGEST_INVALID", "SIZE_INVALID") {
		if cerr := l.CheckBlob(ctx, u.blob.Digest, u.blob.Size); cerr != nil {
			return cerr
		}
	}
	return err
}

// whole sends the blob in one piece.
func (u *upload) whole(ctx context.Context, at string) error {
	res, err := u.c.do(ctx, request{op: u.op(), method: http.MethodPut, url: closing(at, u.blob.Digest), header: octets(),
		body: u.body(0, u.blob.Size), size: u.blob.Size, ok: []int{http.StatusCreated}})
	if err != nil {
		return err
	}
	defer closeAnswer(res)
	return u.checkDigest(res)
}

func octets() http.Header { return http.Header{"Content-Type": {"application/octet-stream"}} }

// body opens length bytes of the blob. What an earlier attempt counted is taken
// back first.
func (u *upload) body(offset, length int64) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		f, size, err := u.from.OpenBlob(u.blob.Digest, offset)
		if err != nil {
			return nil, err
		}
		if size != u.blob.Size {
			err := &archive.CorruptError{Blob: u.blob.Digest, Err: fmt.Errorf("it has %d bytes, want %d", size, u.blob.Size)}
			return nil, errors.Join(err, f.Close())
		}
		u.moveTo(offset)
		u.mu.Lock()
		defer u.mu.Unlock()
		u.newest++
		return counting{io.LimitReader(f, length), f, u, u.newest}, nil
	}
}

// moveTo sets how much counts as moved.
func (u *upload) moveTo(offset int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.c.progress.add(offset-u.moved, 0)
	u.moved = offset
}

func (u *upload) takeBack() { u.moveTo(0) }

// counting counts what the transport takes of a body.
type counting struct {
	r io.Reader
	f io.Closer
	u *upload
	n int
}

func (c counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.u.mu.Lock()
	defer c.u.mu.Unlock()
	c.u.sent += int64(n)
	if n > 0 && c.n == c.u.newest {
		c.u.moved += int64(n)
		c.u.c.progress.add(int64(n), 0)
	}
	return n, err
}

func (c counting) Close() error { return c.f.Close() }

func (u *upload) checkDigest(res *http.Response) error {
	if got := res.Header.Get("Docker-Content-Digest"); got != "" && got != string(u.blob.Digest) {
		return fmt.Errorf("%s: registry %s stored it as %q", u.op(), u.c.repo.RegistryStr(), clean(got, nil))
	}
	return nil
}
