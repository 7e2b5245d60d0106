package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// A registry that may be spoken to in clear, because it is on this machine or was
// allowed to be, is asked over TLS first. Only one that does not speak TLS at all is
// spoken to in clear: what is wrong with a certificate is an error there too, and no
// login follows it in clear. What was found out stays so for as long as the client
// is used.

// patientTLS is how long a greeting over TLS may go unanswered before the same is
// tried in clear beside it.
const patientTLS = 3 * time.Second

// way is how a registry is spoken to.
type way struct {
	host string

	mu     sync.Mutex
	scheme string // "" until it is known
}

func (w *way) get() string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scheme
}

func (w *way) set(scheme string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scheme = scheme
}

// keep gives the address as it is spoken to.
func (w *way) keep(u *url.URL) *url.URL {
	if scheme := w.get(); scheme != "" && u.Host == w.host && u.Scheme != scheme {
		same := *u
		same.Scheme = scheme
		return &same
	}
	return u
}

// findWay finds out how the registry is spoken to, without a login.
func (c *client) findWay(ctx context.Context) error {
	if !c.plain || c.way.get() != "" {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	secure := make(chan error, 1)
	go func() {
		_, err := c.hello(ctx, "https")
		secure <- err
	}()
	slow := time.NewTimer(patientTLS)
	defer slow.Stop()
	var err error
	waiting := false
	select {
	case err = <-secure:
		if err == nil {
			c.way.set("https")
			return nil
		}
		if strings.Contains(err.Error(), noTLS) {
			c.way.set("http")
			return nil
		}
		if speaksTLS(err) || !lost(ctx, err) {
			return err
		}
	case <-slow.C:
		waiting = true
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// A server with TLS answers 400 to a request in clear.
	if code, perr := c.hello(ctx, "http"); perr == nil && code != http.StatusBadRequest {
		c.way.set("http")
		return nil
	}
	if waiting {
		if err = <-secure; err == nil {
			c.way.set("https")
		}
	}
	return err
}

// hello greets the registry and returns the status of its answer.
func (c *client) hello(ctx context.Context, scheme string) (int, error) {
	address := url.URL{Scheme: scheme, Host: c.repo.RegistryStr(), Path: "/v2/"}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return 0, err
	}
	q.Header.Set("User-Agent", userAgent)
	hc := http.Client{Transport: c.base, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := hc.Do(q)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, res.Body) // bounded by the guard
	return res.StatusCode, res.Body.Close()
}

// speaksTLS says that a handshake failed with a peer that speaks TLS.
func speaksTLS(err error) bool {
	var other tls.RecordHeaderError
	if errors.As(err, &other) {
		return false
	}
	return badCertificate(err) != "" || strings.Contains(err.Error(), "tls: ")
}

// pointlessError is one that the same request would end with again.
type pointlessError struct{ text string }

func (e *pointlessError) Error() string { return e.text }

func pointless(format string, args ...any) error {
	return &pointlessError{fmt.Sprintf(format, args...)}
}

// plainError is a request in clear that was not sent.
type plainError struct{ host string }

func (e *plainError) Error() string        { return "plain HTTP to " + e.host + " is refused" }
func (e *plainError) Is(target error) bool { return target == errRefusedHTTP }
