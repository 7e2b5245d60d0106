package loadgen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"assay/schemas"
)

const maxErrorText = 500

// Causes a request's context is ended with.
var (
	errServiceGone = errors.New("the service ended")
	errStopped     = errors.New("the run was stopped")
	errTimeOver    = errors.New("the measuring time was over")
)

// limitError is a time limit that passed.
type limitError struct {
	name  string
	limit time.Duration
}

func (e *limitError) Error() string { return fmt.Sprintf("%s of %s passed", e.name, e.limit) }

// clientResource are the errors of this machine running out of something.
var clientResource = []error{
	syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.ENOBUFS, syscall.ENOMEM,
}

// broken are the errors of a connection that broke in use.
var broken = []error{
	io.EOF, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, net.ErrClosed,
}

// classify names the outcome of an error that ended a request. connected says
// whether a connection had been had; during says what was going on.
func classify(ctx context.Context, err error, connected bool, during string) *fault {
	var limit *limitError
	cause := context.Cause(ctx)
	switch {
	case ctx.Err() == nil:
	case errors.As(cause, &limit):
		return &fault{schemas.OutcomeTimeout, limit.Error() + " while " + during}
	case errors.Is(cause, errServiceGone):
		return &fault{schemas.OutcomeReset, "the service ended while " + during}
	case errors.Is(cause, errTimeOver):
		return &fault{schemas.OutcomeCancelled, "cut at the end of the measuring time while " + during}
	default:
		return &fault{schemas.OutcomeCancelled, "stopped while " + during}
	}
	for _, e := range clientResource {
		if errors.Is(err, e) {
			return &fault{schemas.OutcomeClientResource, "this client ran out of a resource: " + err.Error()}
		}
	}
	text := err.Error()
	var timeout net.Error
	switch {
	case !connected && errors.As(err, &timeout) && timeout.Timeout():
		return &fault{schemas.OutcomeTimeout, "connect limit passed: " + text}
	case !connected:
		return &fault{schemas.OutcomeRefused, "no connection: " + text}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &fault{schemas.OutcomeTruncated, "the connection was closed in the middle of the answer"}
	}
	for _, e := range broken {
		if errors.Is(err, e) {
			return &fault{schemas.OutcomeReset, "the connection broke while " + during + ": " + text}
		}
	}
	if brokenIdle(err) || strings.Contains(text, "closed network connection") {
		return &fault{schemas.OutcomeReset, "the connection broke while " + during + ": " + text}
	}
	return &fault{schemas.OutcomeProtocolError, "not HTTP as expected while " + during + ": " + text}
}
