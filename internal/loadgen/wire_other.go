//go:build !linux

package loadgen

import (
	"context"
	"errors"
	"io"
	"syscall"
)

// onWire says that requests are sent by this package itself, which needs Linux.
const onWire = false

// wire never exists here.
type wire struct{}

func newWire(*Client) (*wire, error) { return nil, errors.New("only on Linux") }

func (w *wire) submit(context.Context, *job) {}

func (w *wire) close() {}

func keepStamping() io.Closer { return nil }

// alive is not known here; a connection that was closed fails its request.
func alive(syscall.RawConn) bool { return true }

// unsent is not known here.
func unsent(syscall.RawConn) bool { return false }
