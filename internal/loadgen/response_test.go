package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
)

// inPieces decodes a response that comes in pieces of up to most bytes.
func inPieces(raw []byte, most int, rng *rand.Rand) (a response, body []byte, err error) {
	for rest := raw; len(rest) > 0; {
		n := min(1+rng.IntN(most), len(rest))
		got, err := a.feed(bytes.Clone(rest[:n]))
		body = append(body, got...)
		if err != nil {
			return a, body, err
		}
		rest = rest[n:]
	}
	return a, body, a.eof()
}

var responses = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n, you ther\r\n1 \r\ne\r\n0\r\nTrailer: t\r\n\r\n",
	"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"HTTP/1.1 200 OK\r\n\r\nuntil the end",
	"HTTP/1.0 200 OK\r\n\r\n",
	"HTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
	"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
	"HTTP/1.1 99999 OK\r\n\r\n",
	"SSH-2.0-OpenSSH_9.6\r\n",
	"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n1\nx\r\n0\r\n\r\n",
}

// A response is taken apart as net/http does it, however it is cut.
func FuzzResponse(f *testing.F) {
	for _, r := range responses {
		f.Add([]byte(r), uint64(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		whole, body, err := inPieces(raw, len(raw)+1, rand.New(rand.NewPCG(seed, 1)))
		cut, body2, err2 := inPieces(raw, 3, rand.New(rand.NewPCG(seed, 0)))
		if (err == nil) != (err2 == nil) || err == nil && (!bytes.Equal(body, body2) || whole.reusable() != cut.reusable()) {
			t.Fatalf("%q, %v in large pieces, %q, %v in small ones", body, err, body2, err2)
		}
		want, wantBody, wantErr := byNetHTTP(raw)
		if err != nil || wantErr != nil {
			if err == nil && !bytes.Contains(bytes.ToLower(raw), []byte("chunked")) {
				t.Fatalf("net/http: %v", wantErr) // of chunks it refuses more than is needed
			}
			return
		}
		if want.StatusCode != whole.head.StatusCode || !bytes.Equal(body, wantBody) {
			t.Fatalf("status %d %q, net/http has %d %q", whole.head.StatusCode, body, want.StatusCode, wantBody)
		}
	})
}

func byNetHTTP(raw []byte) (*http.Response, []byte, error) {
	r := bufio.NewReader(bytes.NewReader(raw))
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
		if err != nil {
			return nil, nil, err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, body, err
		}
	}
}

func TestResponseEnds(t *testing.T) {
	for i, want := range []error{nil, nil, nil, nil, nil, nil, nil, nil, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF} {
		a, _, err := inPieces([]byte(responses[i]), 7, rand.New(rand.NewPCG(uint64(i), 0)))
		if !errors.Is(err, want) || a.done() && a.head == nil {
			t.Errorf("%q: %v, want %v", responses[i], err, want)
		}
	}
	for _, r := range responses[12:20] {
		if _, _, err := inPieces([]byte(r), 7, rand.New(rand.NewPCG(1, 0))); err == nil {
			t.Errorf("%q: no error", r)
		}
	}
	var nothing response
	if err := nothing.eof(); !errors.Is(err, io.EOF) {
		t.Errorf("nothing: %v", err)
	}
}

// Heads and framing lines without end are refused before they fill the memory.
func TestResponseBounds(t *testing.T) {
	for name, start := range map[string]string{
		"head":  "HTTP/1.1 200 OK\r\nX: ",
		"chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
	} {
		var a response
		_, err := a.feed([]byte(start))
		total := 0
		for piece := strings.Repeat("x", 1000); err == nil && total < 10<<20; total += len(piece) {
			_, err = a.feed([]byte(piece))
		}
		if err == nil || cap(a.held) > 4*maxHeadBytes {
			t.Errorf("%s: %v after %d bytes, %d held", name, err, total, cap(a.held))
		}
	}
}

// Only a connection with nothing left on it is used again.
func TestResponseReuse(t *testing.T) {
	for raw, want := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx":                      true,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxy":                     false,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx": false,
		"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx":                      false,
		"HTTP/1.1 200 OK\r\n\r\nx":                                           false,
	} {
		if a, _, _ := inPieces([]byte(raw), 5, rand.New(rand.NewPCG(1, 0))); a.reusable() != want {
			t.Errorf("%q: reusable %v", raw, a.reusable())
		}
	}
}
