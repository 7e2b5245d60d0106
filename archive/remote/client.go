package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"assay/archive"
)

// Options are what a transfer can be told.
type Options struct {
	// PlainHTTP allows HTTP without TLS for registries on other machines.
	PlainHTTP bool
	// Progress is told what was moved; it may be nil. Calls do not overlap.
	Progress func(Progress)
	// Waiting is told why a transfer waits, and for how long, once for each wait; it
	// may be nil. Calls do not overlap.
	Waiting func(text string)

	tune *tuning
}

// Progress is how far a transfer is, in bytes; those that were there already
// count. Total may grow while it goes on.
type Progress = archive.Progress

// The phases of transfers.
const (
	PhasePush = "push"
	PhasePull = "pull"
)

// tuning is what tests change.
type tuning struct {
	chunk     int64 // longest piece of an upload in pieces
	whole     int64 // up to here a blob is sent in one piece
	sleep     func(context.Context, time.Duration) error
	stall     time.Duration // how long nothing may move
	getenv    func(string) string
	transport http.RoundTripper // nil for a real one
}

const (
	chunkBytes   = 32 << 20
	wholeBytes   = 32 << 20
	parallel     = 4 // blobs in flight
	userAgent    = "assay"
	maxRedirects = 5
	renewals     = 3 // of the token of one request: others use it up too
)

func (o Options) tuned() tuning {
	t := tuning{chunk: chunkBytes, whole: wholeBytes, sleep: sleep, stall: stallTime, getenv: os.Getenv}
	if o.tune == nil {
		return t
	}
	if o.tune.chunk > 0 {
		t.chunk, t.whole = o.tune.chunk, o.tune.whole
	}
	if o.tune.sleep != nil {
		t.sleep = o.tune.sleep
	}
	if o.tune.stall > 0 {
		t.stall = o.tune.stall
	}
	if o.tune.getenv != nil {
		t.getenv = o.tune.getenv
	}
	t.transport = o.tune.transport
	return t
}

// client speaks to one repository.
type client struct {
	repo     name.Repository
	scopes   []string
	base     http.RoundTripper
	tune     tuning
	progress *meter
	logins   *logins
	waits    waits
	plain    bool // HTTP without TLS is allowed
	way      *way
	compat   bool // what is pushed is wrapped already

	mu    sync.Mutex
	cred  credential
	http  *http.Client
	shake int // how many handshakes there were
}

// dial finds credentials and makes contact. Nothing is sent but the handshake.
func dial(ctx context.Context, ref Reference, o Options, action string, alsoRead ...name.Repository) (*client, error) {
	t := o.tuned()
	cred, err := findCredential(ctx, ref.repo, t.getenv)
	if err != nil {
		return nil, err
	}
	plain := o.PlainHTTP || loopback(ref.Host())
	base := t.transport
	if base == nil {
		base = newTransport()
	}
	var nameOpts []name.Option
	if plain {
		nameOpts = append(nameOpts, name.Insecure)
	}
	repo, err := name.NewRepository(ref.repo.Name(), nameOpts...)
	if err != nil {
		return nil, err
	}
	l, w := &logins{}, &way{host: repo.RegistryStr()}
	c := &client{repo: repo, cred: cred, base: guard{base, plainHost(ref, o), t.stall, l, w}, logins: l, way: w, plain: plain, tune: t,
		progress: newMeter(o.Progress), waits: waits{tell: o.Waiting}, scopes: []string{repo.Scope(action)}}
	for _, r := range alsoRead {
		c.scopes = append(c.scopes, r.Scope(transport.PullScope))
	}
	return c, c.handshake(ctx, 0)
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 20 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          2 * parallel,
		MaxIdleConnsPerHost:   2 * parallel,
		IdleConnTimeout:       30 * time.Second,
		TLSHandshakeTimeout:   20 * time.Second,
		ResponseHeaderTimeout: 10 * time.Minute, // a registry may hash a whole blob before it answers
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true, // blobs are compared byte for byte
	}
}

// plainHost is the host that plain HTTP is allowed to by flag.
func plainHost(ref Reference, o Options) string {
	if !o.PlainHTTP {
		return ""
	}
	host, _, err := net.SplitHostPort(ref.Host())
	if err != nil {
		return ref.Host()
	}
	return host
}

// handshake asks the registry how it wants to be spoken to. Several requests may
// find their token refused at once: seen is the handshake they relied on, and
// only the first of them makes a new one.
func (c *client) handshake(ctx context.Context, seen int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shake != seen {
		return nil
	}
	for n := 0; ; n++ {
		rt, err := c.shakeOnce(ctx)
		if err == nil {
			c.http = &http.Client{Transport: rt, CheckRedirect: checkRedirect}
			c.shake++
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var refused *transport.Error
		again := lost(ctx, err)
		if errors.As(err, &refused) {
			again = worthRepeating(refused.StatusCode)
		}
		err = explain(transportError("connect", c.repo.RegistryStr(), err, c.logins.all(c.cred.secret)), c.cred)
		if !again || n+1 >= attempts {
			return err
		}
		if err := c.wait(ctx, pause(n), err.Error()); err != nil {
			return err
		}
	}
}

func (c *client) shakeOnce(ctx context.Context) (http.RoundTripper, error) {
	if err := c.findWay(ctx); err != nil {
		return nil, err
	}
	rt, err := transport.NewWithContext(ctx, c.repo.Registry, c.cred.auth, transport.NewUserAgent(c.base, userAgent), c.scopes)
	var hung *stalledError
	if c.way.get() == "http" && errors.As(err, &hung) {
		err = &stalledError{"it speaks HTTP without TLS, and does not answer"}
	}
	return rt, err
}

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return pointless("more than %d redirects", maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && r.URL.Scheme != "https" {
		return &plainError{r.URL.Host}
	}
	return nil
}

// request is one that can be sent again.
type request struct {
	op     string // for messages: "push blob sha256:..."
	method string
	url    string
	header http.Header
	// body opens what is sent, size bytes; nil for none.
	body func() (io.ReadCloser, error)
	size int64
	ok   []int // the answers that are none of an error
	once bool  // not to be repeated when the connection breaks
}

// do sends a request until it is answered with something that repeating would
// not change. The caller closes the answer's body.
func (c *client) do(ctx context.Context, r request) (*http.Response, error) {
	renewed := 0
	for n := 0; ; n++ {
		hc, seen, cred := c.current()
		res, err := c.send(ctx, hc, r)
		if ctx.Err() != nil {
			closeAnswer(res)
			return nil, context.Cause(ctx)
		}
		wait := pause(n)
		switch {
		case corrupt(err): // what was to be sent
			var bad *archive.CorruptError
			errors.As(err, &bad)
			return nil, fmt.Errorf("%s: %w", r.op, bad)
		case err != nil:
			err = transportError(r.op, c.repo.RegistryStr(), err, c.logins.all(cred.secret))
			if status(err) != 0 && !worthRepeating(status(err)) {
				return nil, explain(err, cred)
			}
			if r.once || !lost(ctx, err) {
				return nil, err
			}
		case res.StatusCode == http.StatusUnauthorized && renewed < renewals && res.Request.URL.Host == c.repo.RegistryStr():
			// A token, or a helper's short-lived password, ran out.
			renewed++
			closeAnswer(res)
			if herr := c.renew(ctx, seen); herr != nil {
				return nil, herr
			}
			continue
		case slices.Contains(r.ok, res.StatusCode):
			return res, nil
		default:
			refused := answerError(r.op, c.repo.RegistryStr(), res, c.logins.all(cred.secret))
			err = refused
			if !worthRepeating(refused.Status) || (r.once && refused.Status != http.StatusTooManyRequests) {
				return nil, explain(err, cred)
			}
			if a := asked(res.Header, time.Now()); a > longestAsked {
				return nil, tooLong(refused, a)
			} else if a > wait {
				wait = a
			}
		}
		if n+1 >= attempts {
			return nil, explain(fmt.Errorf("%w (after %d attempts)", err, attempts), cred)
		}
		if err := c.wait(ctx, wait, err.Error()); err != nil {
			return nil, err
		}
	}
}

func (c *client) current() (*http.Client, int, credential) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.http, c.shake, c.cred
}

// renew asks for the credentials again and shakes hands anew.
func (c *client) renew(ctx context.Context, seen int) error {
	c.mu.Lock()
	if c.shake == seen {
		cred, err := findCredential(ctx, c.repo, c.tune.getenv)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		c.cred = cred
	}
	c.mu.Unlock()
	return c.handshake(ctx, seen)
}

func (c *client) send(ctx context.Context, hc *http.Client, r request) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ours(ctx), r.method, r.url, nil)
	if err != nil {
		return nil, err
	}
	for k, v := range r.header {
		q.Header[k] = v
	}
	if r.body != nil {
		q.Body, q.GetBody, q.ContentLength = unopened{}, r.body, r.size // guard opens it
		if r.size == 0 {
			q.Body, q.GetBody = http.NoBody, noBody
		}
	}
	return hc.Do(q)
}

// unopened stands for a body until it is sent.
type unopened struct{}

func (unopened) Read([]byte) (int, error) { return 0, errors.New("the body was not opened") }
func (unopened) Close() error             { return nil }

func (c *client) url(format string, args ...any) string {
	u := url.URL{Scheme: c.repo.Scheme(), Host: c.repo.RegistryStr(), Path: "/v2/" + c.repo.RepositoryStr() + fmt.Sprintf(format, args...)}
	return u.String()
}

// closeAnswer ends an answer so that its connection can be used again.
func closeAnswer(res *http.Response) {
	if res != nil {
		_, _ = io.CopyN(io.Discard, res.Body, 64<<10)
		_ = res.Body.Close()
	}
}
