package loadgen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"assay/internal/redact"
)

// Defaults of Options.
const (
	DefaultRequestTimeout = 10 * time.Minute
	DefaultIdleTimeout    = 2 * time.Minute
	DefaultConnectTimeout = 10 * time.Second
	DefaultMaxConnections = 4096

	// keepAlive closes idle connections before the shortest server default in
	// common use (5 s) can close them under a request.
	keepAlive = 3 * time.Second

	maxListBytes = 4 << 20
	listTimeout  = 30 * time.Second
)

// Options describe a client and, for Run, what it is to send.
type Options struct {
	// BaseURL is where the service answers; /v1/... is added to it.
	BaseURL string
	// API is APICompletions (the default) or APIChat.
	API string
	// ContentSeed is what prompts are made from.
	ContentSeed uint64
	// Held asks the service, by ignore_eos, for exactly the asked length, and
	// makes any other length a failure.
	Held bool
	// Whole asks for each answer in one piece, not as a stream. Its record has one
	// chunk, stamped when the last of it came.
	Whole bool
	// MinTokens holds it by min_tokens instead.
	MinTokens bool
	// Extra fields are added to every body.
	Extra map[string]any
	// Headers are added to every request. Their values never reach a record.
	Headers http.Header

	// RequestTimeout limits one request from dispatch to end; IdleTimeout the
	// silence within its stream; ConnectTimeout the making of a connection.
	RequestTimeout, IdleTimeout, ConnectTimeout time.Duration
	// MaxConnections is the most requests in flight, and idle connections kept.
	// A request beyond it is client_resource: it never waits.
	MaxConnections int
	// MaxEventBytes is the largest event accepted.
	MaxEventBytes int
	// Pool holds connections made before; nil for none. The caller closes it.
	Pool *Pool
	// UserStamps takes every stamp when a read returns, even where the kernel
	// could tell when the bytes arrived.
	UserStamps bool
	// NormalPriority leaves the threads that send and read at the priority of all
	// others. They are few and short of work, and else are given a higher one where
	// the system permits it.
	NormalPriority bool
	// RequestIDs sends each request's id in the header X-Request-Id.
	RequestIDs bool
	// Watch is told of the client, so that it can ask it at its end; nil for none.
	Watch *Watch

	// Anchor is the zero of all stamps, as time.Now returned it (it must carry a
	// monotonic reading). Zero means now.
	Anchor time.Time
	// ServiceDone, when closed, says that the service is gone: what was not sent
	// is not_sent, what is in flight is given a moment to fail by itself.
	ServiceDone <-chan struct{}

	// Concurrency makes Run a closed loop of this many requests in flight.
	Concurrency int
	// MaxInFlight makes requests of Run's open loop wait while this many are in flight.
	MaxInFlight int
	// Until ends a closed loop this long after Anchor: what was not begun by then is
	// not sent and has no record. 0 sends every request.
	Until time.Duration
	// CutAtEnd cancels what is in flight at Until, instead of waiting for it.
	CutAtEnd bool
	// Tap is told of answers while they arrive; nil for nobody.
	Tap *Tap
	// Requests and Progress are for Run only. Progress is called a few times a
	// second, from the goroutine that calls sink.
	Requests []Request
	Progress func(Progress)
}

// Progress counts requests while Run sends them.
type Progress struct {
	Total, Sent, Done, Failed int
}

// Client sends requests to one service. Its methods may be called from several
// goroutines.
type Client struct {
	opts     Options
	base     string // without a trailing slash
	extra    []byte
	hide     *redact.Secrets // header values that must not reach a text
	http     *http.Transport
	again    *http.Transport // makes a connection for each request
	inFlight atomic.Int64

	wireMu      sync.Mutex
	wire        *wire  // nil until something is to be sent on it
	requestHead []byte // of every request on it

	clock      *stampClock
	stamping   bool      // the kernel stamps what connections receive
	keepStamps io.Closer // nil where it does not
	readLag    histogram
	priority   atomic.Pointer[string] // of the threads that send and read
}

// New checks opts and makes a client; nothing is sent.
func New(opts Options) (*Client, error) {
	c := &Client{opts: opts}
	base, err := checkedURL(opts.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("load client: %w", err)
	}
	c.base = base
	if c.extra, err = extraFields(opts.Extra); err != nil {
		return nil, fmt.Errorf("load client: %w", err)
	}
	if c.opts.API == "" {
		c.opts.API = APICompletions
	}
	if c.opts.API != APICompletions && c.opts.API != APIChat {
		return nil, fmt.Errorf("load client: api %q: want %q or %q", opts.API, APICompletions, APIChat)
	}
	c.defaults()
	marks := map[string]string{}
	for name, values := range opts.Headers {
		if slices.Contains([]string{"Content-Length", "Host", "Transfer-Encoding", "Connection"}, http.CanonicalHeaderKey(name)) {
			return nil, fmt.Errorf("load client: header %s: this client sets it itself; leave it out", name)
		}
		for _, s := range secretsOf(values) {
			marks[s] = "***"
		}
	}
	c.hide = redact.New(marks)
	c.clock = newStampClock(c.opts.Anchor)
	if c.requestHead, err = c.head(); err != nil {
		return nil, fmt.Errorf("load client: %w", err)
	}
	if c.kernelStamps() {
		c.keepStamps = keepStamping()
		c.stamping = c.keepStamps != nil
	}
	c.http, c.again = c.transport(), c.transport()
	c.again.DisableKeepAlives, c.again.DialContext = true, c.dialNew
	if c.opts.Watch != nil {
		c.opts.Watch.client = c
	}
	return c, nil
}

func (c *Client) defaults() {
	o := &c.opts
	for _, d := range []struct {
		to  *time.Duration
		def time.Duration
	}{{&o.RequestTimeout, DefaultRequestTimeout}, {&o.IdleTimeout, DefaultIdleTimeout}, {&o.ConnectTimeout, DefaultConnectTimeout}} {
		if *d.to <= 0 {
			*d.to = d.def
		}
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = DefaultMaxConnections
	}
	if o.MaxEventBytes <= 0 {
		o.MaxEventBytes = DefaultMaxEventBytes
	}
	if o.Anchor.IsZero() {
		o.Anchor = time.Now()
	}
}

// Close closes idle connections. Requests in flight are not touched.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.wireMu.Lock()
	defer c.wireMu.Unlock()
	if c.wire != nil {
		c.wire.close()
		c.wire = nil
	}
	if c.keepStamps != nil {
		c.keepStamps.Close()
	}
}

// lanes returns the wire, which it makes if there is none.
func (c *Client) lanes() (*wire, error) {
	c.wireMu.Lock()
	defer c.wireMu.Unlock()
	if c.wire == nil {
		w, err := newWire(c)
		if err != nil {
			return nil, err
		}
		c.wire = w
	}
	return c.wire, nil
}

// Anchor is the zero of the client's stamps.
func (c *Client) Anchor() time.Time { return c.opts.Anchor }

func (c *Client) now() int64 { return int64(time.Since(c.opts.Anchor)) }

func checkedURL(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("the service's URL cannot be parsed; want http://host:port")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", fmt.Errorf("service URL %q: want http://host:port or https://host:port", u.Redacted())
	case u.User != nil:
		return "", fmt.Errorf("service URL %q holds a user; give credentials as a header", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("service URL for host %s has a query or fragment; leave it out", u.Host)
	}
	path := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return u.Scheme + "://" + u.Host + path, nil
}

// secretsOf lists header values, and the part after a scheme like "Bearer".
func secretsOf(values []string) []string {
	var out []string
	for _, v := range values {
		out = append(out, v)
		if _, rest, ok := strings.Cut(v, " "); ok {
			out = append(out, rest)
		}
	}
	return slices.DeleteFunc(out, func(s string) bool { return len(strings.TrimSpace(s)) < 4 })
}

// scrub makes a text fit for a record: no header value, printable, of one line,
// bounded.
func (c *Client) scrub(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(c.hide.String(text), "\uFFFD")) // before it is cut: a part of a secret cannot be told
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return strings.TrimSpace(text)
}

// ListModels returns the ids that /v1/models lists, in its order.
func (c *Client) ListModels(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/v1/models", nil)
	if err != nil {
		return nil, fmt.Errorf("list models: %w", err)
	}
	c.setHeaders(req)
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("list models: GET %s/v1/models: %s", c.base, c.scrub(err.Error()))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxListBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("list models: GET %s/v1/models: %w", c.base, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("list models: GET %s/v1/models: status %d: %s", c.base, resp.StatusCode, c.scrub(string(body)))
	case len(body) > maxListBytes:
		return nil, fmt.Errorf("list models: the answer is over the limit of %d bytes", maxListBytes)
	}
	return modelIDs(body)
}

func modelIDs(body []byte) ([]string, error) {
	var doc struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("list models: the answer is not the expected JSON: %w", err)
	}
	var ids []string
	for i, m := range doc.Data {
		if m.ID == "" || slices.Contains(ids, m.ID) {
			return nil, fmt.Errorf("list models: entry %d has an empty or repeated id %q", i, m.ID)
		}
		ids = append(ids, m.ID)
	}
	return ids, nil
}

func (c *Client) setHeaders(req *http.Request) {
	req.Header.Set("User-Agent", "assay")
	for name, values := range c.opts.Headers {
		req.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
}
