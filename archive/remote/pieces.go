package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// errNoPieces is the end of an upload in pieces to a registry that takes none.
var errNoPieces = errors.New("the registry takes no pieces")

// pieces sends the blob from offset on, piece by piece, and closes the upload.
// After each piece the session is written down: whoever is killed in between
// goes on from there.
func (u *upload) pieces(ctx context.Context, at string, offset int64) error {
	var p patience
	for offset < u.blob.Size {
		next, err := u.piece(ctx, at, offset)
		switch {
		case errors.Is(err, errNoPieces) && offset == 0:
			// The refused piece may have spoiled the session.
			fresh, _, serr := u.start(ctx, "")
			if serr != nil || fresh == "" {
				return serr
			}
			return u.whole(ctx, fresh)
		case err != nil && final(err):
			return err
		case err != nil:
			if !p.fault(offset, time.Now()) || ctx.Err() != nil {
				return err
			}
			if werr := u.c.wait(ctx, p.pause(), err.Error()); werr != nil {
				return werr
			}
			// How much arrived only the registry knows.
			where, have, serr := u.ask(ctx, at)
			if serr != nil {
				return &lostUpload{errors.Join(err, serr)}
			}
			at, offset = where, have
			continue
		}
		at, offset = next, min(offset+u.chunk, u.blob.Size)
		u.note(at)
	}
	res, err := u.c.do(ctx, request{op: u.op(), method: http.MethodPut, url: closing(at, u.blob.Digest), header: octets(), body: noBody, ok: []int{http.StatusCreated}})
	if err != nil {
		if has, _, herr := u.c.hasBlob(ctx, u.blob); herr == nil && has {
			return nil // closed, but the answer was lost
		}
		return err
	}
	defer closeAnswer(res)
	return u.checkDigest(res)
}

// final says that asking for the offset would not help.
func final(err error) bool {
	code := status(err)
	return code >= 400 && code < 500 && code != http.StatusRequestedRangeNotSatisfiable && !worthRepeating(code)
}

// piece sends one piece and returns where the next one goes.
func (u *upload) piece(ctx context.Context, at string, offset int64) (string, error) {
	length := min(u.chunk, u.blob.Size-offset)
	h := octets()
	h.Set("Content-Range", fmt.Sprintf("%d-%d", offset, offset+length-1))
	res, err := u.c.do(ctx, request{op: u.op(), method: http.MethodPatch, url: at, header: h, body: u.body(offset, length), size: length,
		ok: []int{http.StatusAccepted, http.StatusCreated, http.StatusNoContent}, once: true})
	switch status(err) {
	case http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusUnsupportedMediaType:
		return "", errNoPieces
	}
	if err != nil {
		return "", err
	}
	defer closeAnswer(res)
	if have, ok := received(res.Header.Get("Range")); ok && have != offset+length {
		return "", fmt.Errorf("%s: registry %s has %d bytes after a piece that ends at %d", u.op(), u.c.repo.RegistryStr(), have, offset+length)
	}
	return location(res)
}

// ask how many bytes of an upload the registry has, and where to go on.
func (u *upload) ask(ctx context.Context, at string) (string, int64, error) {
	res, err := u.c.do(ctx, request{op: u.op() + ": go on", method: http.MethodGet, url: at, ok: []int{http.StatusNoContent, http.StatusOK, http.StatusAccepted}})
	if err != nil {
		return "", 0, err
	}
	defer closeAnswer(res)
	have, ok := received(res.Header.Get("Range"))
	if !ok || have > u.blob.Size {
		return "", 0, &Error{Op: u.op() + ": go on", Registry: u.c.repo.RegistryStr(), Status: http.StatusRequestedRangeNotSatisfiable,
			Hint: "it does not say how much of the blob it has"}
	}
	if res.Header.Get("Location") == "" {
		return at, have, nil
	}
	next, err := location(res)
	return next, have, err
}

// received reads a Range header: "0-99" is 100 bytes, "0-0" none (registries
// write it for an empty upload; no piece of ours is a single byte long).
func received(text string) (int64, bool) {
	from, to, ok := strings.Cut(strings.TrimPrefix(text, "bytes="), "-")
	last, err := strconv.ParseInt(to, 10, 64)
	if !ok || from != "0" || err != nil || last < 0 {
		return 0, false
	}
	if last == 0 {
		return 0, true
	}
	return last + 1, true
}

// takeUp continues an upload that an earlier process began.
func (u *upload) takeUp(ctx context.Context) (done bool, err error) {
	at := u.sessions.load(u.c.repo.Name(), u.blob.Digest)
	if at == "" || !u.ours(at) {
		return false, nil
	}
	where, have, err := u.ask(ctx, at)
	if err == nil {
		u.moveTo(have)
		err = u.pieces(ctx, where, have)
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx) // what is noted serves the next push
	}
	u.forget()
	if err != nil {
		u.takeBack() // the registry forgot it: begin again
	}
	return err == nil, nil
}
