package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"assay/archive"
)

// Retrying: a request is sent at most attempts times; the pause before the n-th
// repetition is drawn from the upper half of 0.5 s * 2^n, at most 30 s, and is
// at least what Retry-After asks for. A registry that asks for more than five
// minutes is not waited for.
const (
	attempts     = 6
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
	longestAsked = 5 * time.Minute
	blobAttempts = 3 // how often a blob is sent from the beginning when its upload is lost
)

var errRefusedHTTP = errors.New("plain HTTP is for this machine only: use a registry with TLS, or allow it with --plain-http")

// pause is how long to wait before repetition n (from 0).
func pause(n int) time.Duration {
	d := min(firstPause<<min(n, 10), longestPause)
	return d/2 + rand.N(d/2)
}

// asked reads Retry-After: seconds or a date.
func asked(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if s, err := strconv.Atoi(text); err == nil && s >= 0 {
		return time.Duration(min(s, 1<<20)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// worthRepeating says whether the same request may be answered otherwise later.
func worthRepeating(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// lost says whether err is a connection that broke, and not one that can never
// work.
func lost(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, errRefusedHTTP) || errors.Is(err, archive.ErrUnreachable) || corrupt(err) {
		return false // the last two are of what was to be sent
	}
	var (
		dns   *net.DNSError
		addr  *net.AddrError // a port that is none
		never *pointlessError
		local *fs.PathError // what was to be sent could not be read
	)
	switch {
	case errors.As(err, &local) && !errors.Is(err, fs.ErrClosed): // closed: by the transport, after an answer
		return false
	case badCertificate(err) != "", errors.As(err, &addr), errors.As(err, &never):
		return false
	case errors.As(err, &dns):
		return !dns.IsNotFound
	}
	return true
}

// badCertificate says what to do about a certificate that is not trusted; "" for
// another error.
func badCertificate(err error) string {
	var (
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &host):
		return "use a name that the certificate has"
	case errors.As(err, &unknown):
		return "add the certificate of its authority to those that this machine trusts, or name a file with it in SSL_CERT_FILE"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "look at this machine's clock; whoever runs the registry must renew the certificate"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "whoever runs the registry must replace the certificate"
	}
	return ""
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tooLong says that the registry wants us to come back much later.
func tooLong(e *Error, d time.Duration) *Error {
	e.Hint = fmt.Sprintf("it asks to wait %s: try again then", d.Round(time.Second))
	return e
}
