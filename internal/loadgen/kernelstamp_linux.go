package loadgen

import (
	"encoding/binary"
	"io"
	"net"
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

// askForStamps makes the kernel stamp what a socket receives.
func askForStamps(raw syscall.RawConn) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = stampSocket(fd) }); cerr != nil {
		return cerr
	}
	return err
}

func stampSocket(fd uintptr) error {
	return unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE)
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
	is := false
	err := raw.Read(func(fd uintptr) bool { is = quiet(int(fd)); return true })
	return err == nil && is
}

// quiet says that a socket has nothing to read: no bytes, no end, no error.
func quiet(fd int) bool {
	var p [1]unix.PollFd
	p[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}
	for {
		n, err := unix.Poll(p[:], 0)
		if err != unix.EINTR { //nolint:errorlint // an errno, compared on the hot path
			return err == nil && n == 0
		}
	}
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
