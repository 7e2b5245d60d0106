package loadgen

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How long the kernel may take to begin to stamp, and how often that is looked at.
const (
	stampingLimit = 30 * time.Millisecond
	stampingPoll  = 200 * time.Microsecond
)

// timespecsBytes is the size of the three timespecs of a 64-bit kernel's message.
const timespecsBytes = 48

// stampConn is a TCP connection whose receives carry the time at which the kernel
// got their last segment. Like any reader of a stream, it is read by one
// goroutine at a time.
type stampConn struct {
	net.Conn
	raw   syscall.RawConn
	clock *stampClock
	lag   *histogram
	cur   atomic.Pointer[fills]

	// Arguments and results of receive, which is one closure for all reads: a
	// read allocates nothing.
	receive func(fd uintptr) bool
	p       []byte
	n, oobn int
	err     error
	oob     [128]byte
}

// askForStamps makes the kernel stamp what a socket receives.
func askForStamps(raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE)
	}); cerr != nil {
		return cerr
	}
	return err
}

// keepStamping holds a socket open that asks for stamps, and returns when the
// kernel gives them: it begins only a moment after the first socket asked, and ends
// when the last is closed. nil says that it does not stamp.
func keepStamping() io.Closer {
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil
	}
	raw, err := pc.SyscallConn()
	if err != nil || askForStamps(raw) != nil || pc.SetDeadline(time.Now().Add(stampingLimit)) != nil || !stampsOwn(pc) {
		pc.Close()
		return nil
	}
	return pc
}

// stampsOwn sends datagrams to the socket itself until one comes with a stamp.
func stampsOwn(pc *net.UDPConn) bool {
	var data [1]byte
	var oob [128]byte
	for {
		if _, err := pc.WriteTo(data[:], pc.LocalAddr()); err != nil {
			return false
		}
		_, n, _, _, err := pc.ReadMsgUDP(data[:], oob[:])
		if err != nil {
			return false
		}
		if _, ok := kernelStamp(oob[:n]); ok {
			return true
		}
		time.Sleep(stampingPoll)
	}
}

// stamped wraps a connection, or returns it as it is where the kernel cannot
// stamp it.
func stamped(conn net.Conn, clock *stampClock, lag *histogram) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil || askForStamps(raw) != nil {
		return conn
	}
	c := &stampConn{Conn: tcp, raw: raw, clock: clock, lag: lag}
	now, _ := clock.now()
	c.cur.Store(newFills(now))
	c.receive = func(fd uintptr) bool {
		for {
			c.n, c.oobn, _, _, c.err = unix.Recvmsg(int(fd), c.p, c.oob[:], 0)
			if c.err != unix.EINTR { //nolint:errorlint // an errno, compared on the hot path
				return c.err != unix.EAGAIN //nolint:errorlint // as above
			}
		}
	}
	return c
}

// begin starts the account of a request that got the connection.
func (c *stampConn) begin(now int64) *fills {
	f := newFills(now)
	c.cur.Store(f)
	return f
}

// Read is one receive; its stamp goes to the request that has the connection.
func (c *stampConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.p = p
	err := c.raw.Read(c.receive)
	c.p = nil
	full := c.n == len(p)
	switch {
	case err != nil:
		return 0, err
	case c.err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("recvmsg", c.err)}
	case c.n == 0:
		return 0, io.EOF
	}
	c.note(full)
	return c.n, nil
}

// note stamps a receive: by the kernel if its stamp is there and possible, else by
// this moment.
func (c *stampConn) note(full bool) {
	f := c.cur.Load()
	now, stepped := c.clock.now()
	wall, ok := kernelStamp(c.oob[:c.oobn])
	at := c.clock.mono(wall)
	if !ok || stepped || at > now+int64(stepTolerance) || at < f.before()-int64(stepTolerance) {
		f.add(now, false, full)
		return
	}
	at = min(at, now)
	c.lag.add(now - at)
	f.add(at, true, full)
}

// kernelStamp takes the software receive stamp, a wall-clock time in ns, out of a
// control message.
func kernelStamp(oob []byte) (int64, bool) {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0, false
		}
		if h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPING && len(data) >= timespecsBytes {
			s, ns := int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:]))
			return s*1e9 + ns, s != 0
		}
		oob = rest
	}
	return 0, false
}

// alive says whether a connection that nothing was asked of is still open and has
// nothing to say.
func alive(raw syscall.RawConn) bool {
	quiet := false
	err := raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && quiet
}

// unsent says whether the kernel still holds bytes of a connection that it did not
// send: it does so when the other end is slow to acknowledge.
func unsent(raw syscall.RawConn) bool {
	if raw == nil {
		return false
	}
	n := 0
	err := raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) })
	return err == nil && n > 0
}
