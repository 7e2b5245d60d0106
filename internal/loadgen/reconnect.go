package loadgen

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"time"
)

// reconnectLimit is how soon after a request was given an idle connection its end
// can be that of the idle connection: the service's word of it was on its way. One
// that ends later, with nothing answered, was dropped by a service that had the
// request, and that is its failure.
const reconnectLimit = 2 * time.Second

// brokenIdle says whether an error may be that of an idle connection which the
// service closed before it saw the request.
func brokenIdle(err error) bool {
	for _, e := range []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	// net/http has no exported error for these. The second is what it says when it
	// would have sent the request again.
	text := err.Error()
	return strings.Contains(text, "server closed idle connection") || strings.Contains(text, "cannot rewind body after connection loss")
}

// again says whether a request whose connection ended is to be sent once more: it
// had an idle connection, which ended soon and without a byte.
func (j *job) again() bool {
	now := j.c.now()
	return j.pooled && j.tries == 0 && j.first == 0 && j.ctx.Err() == nil && now < j.limit && now-j.got < int64(reconnectLimit)
}

// restart makes a request ready for another connection. Its limits, its scheduled
// time and that of its first send stay.
func (j *job) restart() {
	j.tries++
	j.pooled, j.unstated, j.got = false, false, 0
	j.wrote.Store(0)
}

// told adds to what went wrong on the second connection that it was the second.
func (j *job) told(f *fault) *fault { return onAgain(f, j.tries) }

func onAgain(f *fault, tries int) *fault {
	if f != nil && tries > 0 {
		f.text += " (on its second connection; an idle one was closed as it was sent)"
	}
	return f
}
