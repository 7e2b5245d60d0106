package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Bounds of an answer's framing.
const (
	maxHeadBytes  = 256 << 10
	maxFrameBytes = 4 << 10 // a chunk's size line, the trailer
)

// What an answer's next bytes are.
const (
	inHead     = iota
	inBody     // remaining bytes of it
	untilClose // the body, whose end is that of the connection
	inSize     // a chunk's size line
	inChunk    // remaining bytes of it
	afterChunk // the line end after a chunk
	inTrailer
	answered
)

// response takes an HTTP/1.1 answer apart as its bytes come, cut anywhere. It keeps
// nothing of the body.
type response struct {
	state     int
	held      []byte // of the head, a size line or the trailer
	remaining int64
	head      *http.Response // nil until it is whole
	excess    bool           // bytes came after its end
}

// done says that the answer is complete, as its framing tells.
func (a *response) done() bool { return a.state == answered }

// reusable says whether the connection may carry another request.
func (a *response) reusable() bool { return a.done() && !a.head.Close && !a.excess }

// began says whether anything came.
func (a *response) began() bool { return a.head != nil || len(a.held) > 0 }

// feed takes the next bytes and returns those of the body among them, moved to the
// front of b.
func (a *response) feed(b []byte) (body []byte, err error) {
	n := 0
	for rest := b; len(rest) > 0; {
		used, isBody, err := a.step(rest)
		if err != nil {
			return b[:n], err
		}
		if isBody {
			n += copy(b[n:], rest[:used])
		}
		rest = rest[used:]
	}
	return b[:n], nil
}

// step takes some of b and says whether that is of the body.
func (a *response) step(b []byte) (used int, isBody bool, err error) {
	switch a.state {
	case inHead:
		used, err = a.inHead(b)
		return used, false, err
	case untilClose:
		return len(b), true, nil
	case inBody, inChunk:
		used = int(min(a.remaining, int64(len(b))))
		if a.remaining -= int64(used); a.remaining == 0 {
			a.state = map[int]int{inBody: answered, inChunk: afterChunk}[a.state]
		}
		return used, true, nil
	case answered:
		a.excess = true
		return len(b), false, nil
	}
	line, whole, used, err := a.line(b)
	if err != nil || !whole {
		return used, false, err
	}
	return used, false, a.frame(line)
}

// line completes a line of the framing.
func (a *response) line(b []byte) (line []byte, whole bool, used int, err error) {
	end := bytes.IndexByte(b, '\n')
	used = end + 1
	if end < 0 {
		used = len(b)
	}
	if len(a.held)+used > maxFrameBytes {
		return nil, false, used, fmt.Errorf("a line of the chunked coding is longer than %d bytes", maxFrameBytes)
	}
	if len(a.held) > 0 || end < 0 {
		a.held = append(a.held, b[:used]...)
		if end < 0 {
			return nil, false, used, nil
		}
		line, a.held = a.held, a.held[:0]
	} else {
		line = b[:used]
	}
	return bytes.TrimRight(line, "\r\n"), true, used, nil
}

// frame takes a line between the chunks.
func (a *response) frame(line []byte) error {
	switch a.state {
	case afterChunk:
		if len(line) > 0 {
			return errors.New("malformed chunked coding: a chunk is longer than it says")
		}
		a.state = inSize
	case inSize:
		size, err := chunkSize(line)
		if err != nil {
			return err
		}
		a.remaining = size
		if a.state = inChunk; size == 0 {
			a.state = inTrailer
		}
	case inTrailer:
		if len(line) == 0 {
			a.state = answered
		}
	}
	return nil
}

// chunkSize reads the hexadecimal size that a chunk begins with; what may follow a
// semicolon has no meaning here.
func chunkSize(line []byte) (int64, error) {
	digits, _, _ := bytes.Cut(line, []byte(";"))
	digits = bytes.TrimRight(digits, " \t")
	if len(digits) == 0 || len(digits) > 15 {
		return 0, errors.New("malformed chunked coding: a chunk has no proper size")
	}
	n := int64(0)
	for _, d := range digits {
		switch {
		case '0' <= d && d <= '9':
			n = n<<4 | int64(d-'0')
		case 'a' <= d|0x20 && d|0x20 <= 'f':
			n = n<<4 | int64(d|0x20-'a'+10)
		default:
			return 0, errors.New("malformed chunked coding: a chunk's size is not hexadecimal")
		}
	}
	return n, nil
}

// inHead collects the head, and reads it when it is whole. Interim answers (1xx)
// are passed over.
func (a *response) inHead(b []byte) (used int, err error) {
	from := max(0, len(a.held)-3)
	before := len(a.held)
	a.held = append(a.held, b...)
	if err := malformedStart(a.held); err != nil {
		return 0, err
	}
	end := headEnd(a.held[from:])
	if end < 0 {
		if len(a.held) > maxHeadBytes {
			return 0, fmt.Errorf("the answer's head is larger than %d bytes", maxHeadBytes)
		}
		return len(b), nil
	}
	end += from
	head, err := http.ReadResponse(bufio.NewReaderSize(bytes.NewReader(a.held[:end]), 64), &http.Request{Method: http.MethodPost}) //nolint:bodyclose // only the head is read
	if err != nil {
		return 0, err
	}
	a.held = a.held[:0]
	switch {
	case head.StatusCode < 100:
		return 0, fmt.Errorf("malformed HTTP response: status %d", head.StatusCode)
	case head.StatusCode >= 200, head.StatusCode == http.StatusSwitchingProtocols:
		a.begin(head)
	}
	return end - before, nil
}

// malformedStart fails what cannot become a head, before all of it has come.
func malformedStart(b []byte) error {
	const version = "HTTP/1."
	if n := min(len(b), len(version)); string(b[:n]) != version[:n] {
		return fmt.Errorf("malformed HTTP response %q", b[:min(len(b), 100)])
	}
	return nil
}

// headEnd is where a blank line ends, -1 if there is none.
func headEnd(b []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return -1
		}
		i += n + 1
		switch rest := b[i:]; {
		case len(rest) > 0 && rest[0] == '\n':
			return i + 1
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			return i + 2
		}
	}
}

func (a *response) begin(head *http.Response) {
	a.head, a.held = head, nil
	switch n := head.ContentLength; {
	case len(head.TransferEncoding) > 0: // only "chunked" gets this far
		a.state = inSize
	case n == 0 || head.StatusCode == http.StatusNoContent || head.StatusCode == http.StatusNotModified:
		a.state = answered
	case n > 0:
		a.state, a.remaining = inBody, n
	default:
		a.state = untilClose
	}
}

// eof is what the end of the connection means: nil for a body that it ends.
func (a *response) eof() error {
	switch {
	case a.state == untilClose || a.done():
		return nil
	case a.began():
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}
