package remote

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// both serves TLS to who speaks it and HTTP to others, on one port, and notes the
// logins that came in clear.
type both struct {
	net.Listener
	cert   tls.Certificate
	mu     sync.Mutex
	clear  int
	logins []string
}

type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }

func (b *both) Accept() (net.Conn, error) {
	conn, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	if first, err := r.Peek(1); err == nil && first[0] == 0x16 {
		return tls.Server(peeked{conn, r}, &tls.Config{Certificates: []tls.Certificate{b.cert}}), nil
	}
	return peeked{conn, r}, nil
}

func serveBoth(t *testing.T) *both {
	t.Helper()
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &both{Listener: l, cert: secure.TLS.Certificates[0]}
	srv := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if r.TLS == nil {
			b.clear++
			if a := r.Header.Get("Authorization"); a != "" {
				b.logins = append(b.logins, a)
			}
		}
		if r.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
	})}
	go func() { _ = srv.Serve(b) }()
	t.Cleanup(func() { _ = srv.Close() })
	return b
}

// TestCertificateOfThisMachine is a registry on this machine whose certificate nobody
// trusts, and that would take a login in clear as well: the certificate is the error,
// and no login is sent.
func TestCertificateOfThisMachine(t *testing.T) {
	b := serveBoth(t)
	host := b.Addr().String()
	o := noLogin()
	o.tune.getenv = login(t, host, "me", password)
	for _, plain := range []bool{false, true} {
		o.PlainHTTP = plain
		_, err := Check(context.Background(), parseRef(t, Scheme+host+"/a/b:t"), o)
		if err == nil || !strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), "SSL_CERT_FILE") {
			t.Errorf("plain HTTP allowed %v: error %v, want one about the certificate", plain, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.logins) > 0 || b.clear > 0 {
		t.Errorf("%d requests in clear, logins %v", b.clear, b.logins)
	}
}

// TestCertificateAdvice says what to do, however long the error is.
func TestCertificateAdvice(t *testing.T) {
	long := strings.Repeat("because of another reason ", 40)
	for want, err := range map[string]error{
		"SSL_CERT_FILE":              fmt.Errorf("%s: %w", long, x509.UnknownAuthorityError{}),
		"use a name":                 fmt.Errorf("%s: %w", long, x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}),
		"must renew the certificate": fmt.Errorf("%s: %w", long, x509.CertificateInvalidError{Reason: x509.Expired}),
		"must replace":               fmt.Errorf("%s: %w", long, x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}),
	} {
		got := transportError("connect", "a:1", err, nil)
		if !strings.Contains(got.Error(), want) || lost(context.Background(), got) {
			t.Errorf("%v: %q does not say %q, or it is tried again", err, got, want)
		}
	}
}

// TestTrustedCertificateStays keeps to TLS for all that follows, on this machine too.
func TestTrustedCertificateStays(t *testing.T) {
	var mu sync.Mutex
	clear, seen := 0, 0
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if seen++; r.TLS == nil {
			clear++
		}
		if r.URL.Path != "/v2/" {
			refuse(w, 404, "MANIFEST_UNKNOWN", "no")
		}
	}))
	defer secure.Close()
	o := noLogin()
	o.tune.transport = secure.Client().Transport
	_, err := Check(context.Background(), parseRef(t, Scheme+strings.TrimPrefix(secure.URL, "https://")+"/a/b:t"), o)
	if status(err) != 404 || clear > 0 || seen < 2 {
		t.Errorf("error %v after %d requests, %d in clear", err, seen, clear)
	}
}

// TestMuteToTLS is a server that waits for the end of a line, which a greeting over
// TLS need not have: it is spoken to in clear.
func TestMuteToTLS(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				if first, err := r.Peek(1); err != nil || first[0] == 0x16 {
					_, _ = io.Copy(io.Discard, r)
					return
				}
				for {
					q, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					answer := "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
					if q.URL.Path == "/v2/" {
						answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	began := time.Now()
	_, err = Check(context.Background(), parseRef(t, Scheme+l.Addr().String()+"/a/b:t"), noLogin())
	if status(err) != 404 || time.Since(began) > 3*patientTLS {
		t.Errorf("error %v after %s, want a 404", err, time.Since(began))
	}
}
