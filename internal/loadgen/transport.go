package loadgen

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
)

const (
	// Buffers of a connection. They are kept small: thousands of streams have one
	// each, and a token event is a few hundred bytes.
	connReadBuffer  = 8 << 10
	connWriteBuffer = 4 << 10
)

// bodyBuffers are what bodies are read into. One is no smaller than a connection's
// buffer, so that one read takes everything that a receive brought.
var bodyBuffers = sync.Pool{New: func() any { b := make([]byte, connReadBuffer); return &b }}

// transport has every limit stated. HTTP/1.1 only: one stream a connection, so
// that no stream waits behind another.
func (c *Client) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            c.dial,
		TLSHandshakeTimeout:    c.opts.ConnectTimeout,
		DisableCompression:     true,
		MaxIdleConns:           c.opts.MaxConnections,
		MaxIdleConnsPerHost:    c.opts.MaxConnections,
		MaxConnsPerHost:        0, // would queue requests without a word; inFlight is the limit
		IdleConnTimeout:        keepAlive,
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         connReadBuffer,
		WriteBufferSize:        connWriteBuffer,
		Protocols:              protocols,
	}
}

// wired says whether requests are sent on a wire of this package's own; net/http
// sends those under TLS, and on systems other than Linux.
func (c *Client) wired() bool { return onWire && !strings.HasPrefix(c.base, "https://") }

// kernelStamps says whether connections are to be stamped. Under TLS a segment's
// arrival says nothing of an event's.
func (c *Client) kernelStamps() bool { return c.wired() && !c.opts.UserStamps }

// dial takes a connection from the pool, else makes one.
func (c *Client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if conn := c.opts.Pool.take(addr); conn != nil {
		if h, ok := ctx.Value(hooksKey{}).(*hooks); ok {
			h.spare.Store(true)
		}
		return conn, nil
	}
	return c.dialNew(ctx, network, addr)
}

func (c *Client) dialNew(ctx context.Context, network, addr string) (net.Conn, error) {
	return newDialer(c.opts.ConnectTimeout).DialContext(ctx, network, addr)
}
