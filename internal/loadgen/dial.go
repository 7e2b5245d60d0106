package loadgen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// dialsAtOnce keeps a pool's dialling from overrunning the service's backlog.
	dialsAtOnce = 64
	// spareAge is how old a spare connection may be when it is used: servers close
	// those that never send anything, the common ones not before 30 s.
	spareAge = 20 * time.Second
)

// Pool holds connections that were made before they are needed, so that a first
// request does not pay for its connection and many at once are no storm. Those of
// a service with TLS are shaken hands with only when they are used.
type Pool struct {
	addr  string
	mu    sync.Mutex
	spare []spareConn
}

type spareConn struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	made time.Time
}

// Predial makes n connections to the service at baseURL. With an error it returns
// those that it could make.
func Predial(ctx context.Context, baseURL string, n int, timeout time.Duration) (*Pool, error) {
	addr, err := dialAddress(baseURL)
	if err != nil {
		return &Pool{}, fmt.Errorf("pre-dial: %w", err)
	}
	if timeout <= 0 {
		timeout = DefaultConnectTimeout
	}
	p := &Pool{addr: addr}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(dialsAtOnce)
	dialer := newDialer(timeout)
	for range n {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			conn, err := dialer.DialContext(ctx, "tcp", addr)
			if err != nil {
				return err
			}
			return p.put(conn)
		})
	}
	if err := g.Wait(); err != nil {
		return p, fmt.Errorf("pre-dial %d connections to %s, made %d: %w", n, addr, p.Len(), err)
	}
	return p, nil
}

func newDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
}

// dialAddress is the host and port that the transport will dial.
func dialAddress(baseURL string) (string, error) {
	base, err := checkedURL(baseURL)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port), nil
}

func (p *Pool) put(conn net.Conn) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		conn.Close()
		return errors.New("not a TCP connection")
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		conn.Close()
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = append(p.spare, spareConn{conn: tcp, raw: raw, made: time.Now()})
	return nil
}

// Len is the number of connections left.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.spare)
}

// take returns a connection to addr that is open, nil if there is none.
func (p *Pool) take(addr string) net.Conn {
	if p == nil || p.addr != addr {
		return nil
	}
	for {
		p.mu.Lock()
		if len(p.spare) == 0 {
			p.mu.Unlock()
			return nil
		}
		s := p.spare[len(p.spare)-1]
		p.spare = p.spare[:len(p.spare)-1]
		p.mu.Unlock()
		if time.Since(s.made) < spareAge && alive(s.raw) {
			return s.conn
		}
		s.conn.Close()
	}
}

// Close closes the connections that were not used.
func (p *Pool) Close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.spare {
		s.conn.Close()
	}
	p.spare = nil
}
