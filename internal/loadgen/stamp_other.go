//go:build !linux

package loadgen

import (
	"io"
	"net"
	"syscall"
)

// stampConn never exists where the kernel's stamps are not read.
type stampConn struct{ net.Conn }

func (c *stampConn) begin(now int64) *fills { return newFills(now) }

func keepStamping() io.Closer { return nil }

func stamped(conn net.Conn, _ *stampClock, _ *histogram) net.Conn { return conn }

// alive is not known here; a connection that was closed fails its request.
func alive(syscall.RawConn) bool { return true }

// unsent is not known here.
func unsent(syscall.RawConn) bool { return false }
