package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"assay/schemas"

	"golang.org/x/sys/unix"
)

const (
	// A lane looks at the limits of what it carries this often.
	laneTick = 20 * time.Millisecond
	// laneBuffer takes what one receive brings; events are far smaller.
	laneBuffer = 64 << 10
	laneEvents = 256
	// Above busyEvents a tick, a lane whose receives the kernel stamps does not wake
	// for each of them: it takes what came in a rest. Events of one stream are further
	// apart, and processors are left for others.
	busyEvents = 200
	laneRest   = 100 * time.Microsecond
)

// wire sends requests, and reads their answers on threads of its own that do
// nothing else. Every thread waits for many connections at once, so that an event
// passes no queue of the Go scheduler between the kernel and its parser.
type wire struct {
	c     *Client
	addr  string
	lanes []*lane
	turn  atomic.Uint32
	ended sync.WaitGroup
	procs func()

	closed atomic.Bool
	mu     sync.Mutex
	idle   []*wireConn // the last used last
}

// wireConn is one connection of a lane.
type wireConn struct {
	fd   int
	lane *lane
	job  atomic.Pointer[job]

	// Of an idle connection, under the wire's lock.
	parked bool
	fresh  bool  // it was never used
	since  int64 // on the client's clock

	// Stamps of its receives: the newest, and what comes next came after.
	last, floor int64

	// mu is held while the sender or the lane writes, and while the descriptor is
	// closed, so that nobody writes to a number that is another connection's.
	mu   sync.Mutex
	rest []byte
}

// lane is a thread that reads.
type lane struct {
	w      *wire
	epoll  int
	wake   int // an eventfd
	buf    []byte
	oob    [128]byte
	events []unix.EpollEvent
	all    []*wireConn // room for look

	mu    sync.Mutex
	conns map[int32]*wireConn
}

// newWire starts the lanes, with the connections of a pool.
func newWire(c *Client) (*wire, error) {
	addr, err := dialAddress(c.opts.BaseURL)
	if err != nil {
		return nil, err
	}
	w := &wire{c: c, addr: addr}
	for range laneCount() {
		l, err := newLane(w)
		if err != nil {
			w.free()
			return nil, err
		}
		w.lanes = append(w.lanes, l)
	}
	w.procs = moreProcs(2 * len(w.lanes))
	for _, l := range w.lanes {
		w.ended.Go(l.run)
	}
	for {
		conn := c.opts.Pool.take(addr)
		if conn == nil {
			return w, nil
		}
		wc, err := w.adopt(conn)
		if err != nil {
			return w, nil //nolint:nilerr // requests make their connections themselves
		}
		w.put(wc, true)
	}
}

func laneCount() int { return max(1, runtime.NumCPU()/4) }

func newLane(w *wire) (*lane, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		err = unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)})
	}
	if err != nil {
		unix.Close(ep)
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &lane{w: w, epoll: ep, wake: wake, buf: make([]byte, laneBuffer), events: make([]unix.EpollEvent, laneEvents), conns: map[int32]*wireConn{}}, nil
}

// free closes what lanes hold, once they do not run.
func (w *wire) free() {
	for _, l := range w.lanes {
		for _, conn := range l.conns {
			unix.Close(conn.fd)
		}
		unix.Close(l.wake)
		unix.Close(l.epoll)
	}
}

// close ends the lanes as soon as nothing is in flight.
func (w *wire) close() {
	if w.closed.Swap(true) {
		return
	}
	for _, l := range w.lanes {
		unix.Write(l.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) //nolint:errcheck // a lane looks by itself, a tick later
	}
	end := func() {
		w.ended.Wait()
		w.free()
		w.procs()
	}
	if w.c.inFlight.Load() > 0 {
		go end()
		return
	}
	end()
}

// submit sends a request whose job is complete, on a connection that is ready, or
// on one that is made now.
func (w *wire) submit(ctx context.Context, j *job) {
	j.ctx = ctx
	j.s.rec.DispatchedNs = at(w.c.now())
	j.limit = *j.s.rec.DispatchedNs + int64(w.c.opts.RequestTimeout)
	if n := w.c.inFlight.Add(1); n > int64(w.c.opts.MaxConnections) {
		j.end(&fault{schemas.OutcomeClientResource, fmt.Sprintf("%d requests were already in flight, the limit of connections", w.c.opts.MaxConnections)})
		go j.settle(false) // as any other end of a request, not within its start
		return
	}
	for conn, fresh := w.take(); conn != nil; conn, fresh = w.take() {
		if quiet(conn.fd) {
			j.pooled = true
			w.start(conn, j, !fresh)
			return
		}
		conn.lane.close(conn) // the service closed it, or spoke out of turn
	}
	go w.dial(j)
}

// start gives a connection to a request and writes it.
func (w *wire) start(conn *wireConn, j *job, reused bool) {
	conn.mu.Lock()
	defer conn.mu.Unlock()
	now := w.c.now()
	j.got, j.reused = now, reused
	conn.last, conn.floor = now, now
	conn.rest = j.out
	conn.job.Store(j)
	conn.write(j)
}

// write sends what is left of a request; what the socket does not take waits for
// the lane. Its lock is held. An error needs no telling: the lane reads it, after
// what the service may have said before.
func (conn *wireConn) write(j *job) {
	for len(conn.rest) > 0 {
		n, err := unix.Write(conn.fd, conn.rest)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no room, or a broken connection, which the lane will read
			conn.want(unix.EPOLLIN | unix.EPOLLOUT)
			return
		default:
			conn.rest = conn.rest[n:]
		}
	}
	if conn.rest != nil {
		j.wrote.Store(j.c.now())
		conn.rest = nil
	}
}

func (conn *wireConn) want(events uint32) {
	unix.EpollCtl(conn.lane.epoll, unix.EPOLL_CTL_MOD, conn.fd, &unix.EpollEvent{Events: events, Fd: int32(conn.fd)}) //nolint:errcheck // fails only for what is closed
}

// dial makes a connection for a request.
func (w *wire) dial(j *job) {
	limit := min(w.c.opts.ConnectTimeout, time.Duration(j.limit-w.c.now()))
	ctx, cancel := context.WithCancelCause(j.ctx)
	defer cancel(nil)
	if limit < w.c.opts.ConnectTimeout {
		total := time.AfterFunc(limit, func() { cancel(&limitError{"request limit", w.c.opts.RequestTimeout}) })
		defer total.Stop()
	}
	conn, err := newDialer(w.c.opts.ConnectTimeout).DialContext(ctx, "tcp", w.addr)
	if err == nil {
		var wc *wireConn
		if wc, err = w.adopt(conn); err == nil {
			w.start(wc, j, false)
			return
		}
	}
	j.end(j.told(classify(ctx, err, false, "connecting")))
	j.settle(false)
}

// adopt takes a connection away from the Go runtime's poller and gives it to a
// lane.
func (w *wire) adopt(conn net.Conn) (*wireConn, error) {
	defer conn.Close()
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.New("not a TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if cerr := raw.Control(func(of uintptr) { fd, err = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("fcntl", err)}
	}
	if w.c.kernelStamps() {
		stampSocket(uintptr(fd)) //nolint:errcheck // receives without a stamp say so
	}
	l := w.lanes[int(w.turn.Add(1))%len(w.lanes)]
	wc := &wireConn{fd: fd, lane: l}
	l.mu.Lock()
	l.conns[int32(fd)] = wc
	l.mu.Unlock()
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}); err != nil {
		l.close(wc)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("epoll_ctl", err)}
	}
	return wc, nil
}

func (w *wire) put(conn *wireConn, fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	conn.parked, conn.fresh, conn.since = true, fresh, w.c.now()
	w.idle = append(w.idle, conn)
}

func (w *wire) take() (conn *wireConn, fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.idle)
	if n == 0 {
		return nil, false
	}
	conn = w.idle[n-1]
	w.idle = w.idle[:n-1]
	conn.parked = false
	return conn, conn.fresh
}

// retire takes a connection out of the idle ones, if it has been among them for
// its limit, or in any case.
func (w *wire) retire(conn *wireConn, inAnyCase bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	limit := keepAlive
	if conn.fresh {
		limit = spareAge
	}
	if !conn.parked || !inAnyCase && w.c.now()-conn.since < int64(limit) {
		return false
	}
	conn.parked = false
	w.idle = slices.DeleteFunc(w.idle, func(c *wireConn) bool { return c == conn })
	return true
}

// run is the lane's thread. It ends with the goroutine, so that nothing that was
// set for it lives on.
func (l *lane) run() {
	runtime.LockOSThread()
	l.w.c.priority.Store(hotThread(!l.w.c.opts.NormalPriority))
	looked, served, rest := l.w.c.now(), 0, false
	mayRest := l.w.c.stamping && l.w.c.opts.Concurrency == 0
	for {
		if rest {
			threadSleep(laneRest)
		}
		n, err := unix.EpollWait(l.epoll, l.events, int(laneTick/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			n = 0 // only a programming error can be the cause; limits still end requests
		}
		served += max(n, 0)
		for i := range max(n, 0) {
			l.serve(&l.events[i])
		}
		if now := l.w.c.now(); now-looked >= int64(laneTick) {
			looked = now
			rest, served = mayRest && served > busyEvents, 0
			l.look(now)
		}
		if l.w.closed.Load() && l.w.c.inFlight.Load() == 0 {
			return
		}
	}
}

func (l *lane) serve(ev *unix.EpollEvent) {
	l.mu.Lock()
	conn := l.conns[ev.Fd]
	l.mu.Unlock()
	if conn == nil {
		if int(ev.Fd) == l.wake {
			unix.Read(l.wake, l.buf[:8]) //nolint:errcheck // it only wakes
		}
		return
	}
	j := conn.job.Load()
	if j == nil {
		// The service closed it, or speaks out of turn. If it is not idle, a request
		// is about to have it, and will find out.
		if l.w.retire(conn, true) {
			l.close(conn)
		}
		return
	}
	if ev.Events&unix.EPOLLOUT != 0 {
		conn.mu.Lock()
		if conn.write(j); conn.rest == nil {
			conn.want(unix.EPOLLIN)
		}
		conn.mu.Unlock()
	}
	if ev.Events&^unix.EPOLLOUT != 0 {
		l.receive(conn, j)
	}
}

// receive reads once; if more is there, the next wait returns at once.
func (l *lane) receive(conn *wireConn, j *job) {
	n, oobn, _, _, err := unix.Recvmsg(conn.fd, l.buf, l.oob[:], unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR: //nolint:errorlint // errnos, compared on the hot path
		return
	case (n == 0 || err != nil && brokenIdle(err)) && j.again():
		l.again(conn, j)
		return
	case err != nil:
		j.broken(&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("recvmsg", err)})
	case n == 0:
		j.eof(max(l.w.c.now(), conn.last))
	default:
		m, now := l.stamp(conn, j, l.oob[:oobn], n == len(l.buf))
		j.take(l.buf[:n], m, now)
	}
	if j.over {
		l.finish(conn, j)
	}
}

// stamp dates a receive: by the kernel if its stamp is there and possible, else by
// this moment. Stamps of one connection never go back. A receive that filled its
// buffer may have left behind a part of what the kernel merged under one stamp:
// such a stamp is exact for nothing, and no floor for what comes next.
func (l *lane) stamp(conn *wireConn, j *job, oob []byte, full bool) (m mark, now int64) {
	c := l.w.c
	now, stepped := c.clock.now()
	at := now
	if c.stamping {
		wall, ok := kernelStamp(oob)
		if at = c.clock.mono(wall); !ok || stepped || at > now+int64(stepTolerance) || at < conn.last-int64(stepTolerance) {
			at, j.unstated = now, true
		} else {
			at = min(at, now)
			c.readLag.add(now - at)
		}
	}
	at = max(at, conn.last)
	m = mark{since: conn.floor, at: at, exact: !full}
	conn.last = at
	if !full {
		conn.floor = at
	}
	return m, now
}

// finish settles a request that is over, and keeps its connection if it can.
func (l *lane) finish(conn *wireConn, j *job) {
	conn.mu.Lock() // the sender may not have come back from its write yet
	written := j.wrote.Load() != 0
	conn.mu.Unlock()
	conn.job.Store(nil)
	if written && j.answer.reusable() && j.s.fault == nil && !l.w.closed.Load() {
		l.w.put(conn, false)
	} else {
		l.close(conn)
	}
	j.settle(l.w.c.stamping)
}

// again sends a request on a new connection, after its idle one turned out to be
// closed.
func (l *lane) again(conn *wireConn, j *job) {
	conn.mu.Lock() // the sender may not have come back from its write yet
	conn.rest = nil
	conn.job.Store(nil)
	conn.mu.Unlock()
	l.close(conn)
	j.restart()
	go l.w.dial(j)
}

// close closes a connection that nobody else can come by.
func (l *lane) close(conn *wireConn) {
	l.mu.Lock()
	delete(l.conns, int32(conn.fd))
	l.mu.Unlock()
	conn.mu.Lock()
	defer conn.mu.Unlock()
	unix.Close(conn.fd)
}

// look ends what is over its limits, and closes connections before the service may
// close them under a request.
func (l *lane) look(now int64) {
	l.mu.Lock()
	l.all = l.all[:0]
	for _, conn := range l.conns {
		l.all = append(l.all, conn)
	}
	l.mu.Unlock()
	for _, conn := range l.all {
		if j := conn.job.Load(); j != nil {
			if j.expire(now); j.over {
				l.finish(conn, j)
			}
			continue
		}
		if l.w.retire(conn, false) {
			l.close(conn)
		}
	}
}
