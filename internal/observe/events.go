package observe

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"assay/schemas"
)

// EventsFile holds a service's events.
const EventsFile = "events.jsonl"

const (
	maxEventBytes = 4 << 20
	// eventSilence is how long a stream may be silent: Aegaeon sends a comment
	// every 15 s.
	eventSilence  = 60 * time.Second
	reconnectWait = time.Second
	retainedWait  = 500 * time.Millisecond
)

// Event is one server-sent event.
type Event struct {
	Name string
	Data []byte
}

// ReadEvent reads the next event of a stream, of at most limit bytes. Comments
// are passed over; tick is called for every line.
func ReadEvent(rd *bufio.Reader, limit int, tick func()) (Event, error) {
	var ev Event
	size, some := 0, false
	for {
		line, err := readLine(rd, limit-size)
		if err != nil {
			return ev, err
		}
		if tick != nil {
			tick()
		}
		size += len(line)
		if len(line) == 0 {
			if some {
				return ev, nil
			}
			ev, size = Event{}, 0 // one without data is none
			continue
		}
		key, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(key) {
		case "event":
			ev.Name = strings.ToValidUTF8(string(value), "\uFFFD")
		case "data":
			if some {
				ev.Data = append(ev.Data, '\n')
			}
			ev.Data, some = append(ev.Data, value...), true
		}
	}
}

// readLine reads a line without its end.
func readLine(rd *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := rd.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("an event larger than %d bytes", maxEventBytes)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

// events records a stream from before the first request on.
type events struct {
	ep   *endpoint
	path string
	dir  string
	hide func(string) string
	st   *schemas.ObservedSource
	out  *sink

	mu     sync.Mutex // guards what the stream and the watcher both count
	err    string
	errors int64
	count  int64
	cancel context.CancelFunc
	first  chan struct{} // closed at the first event
	done   chan struct{}
	cpu    time.Duration // valid once done is closed
}

// before connects; what the service retained comes first.
func (e *events) before(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	rd, err := e.connect(ctx)
	if err != nil {
		cancel()
		return err
	}
	if e.out, err = newSink(e.dir, EventsFile, map[string]any{"schema": "assay/observed-events/v1", "path": e.path}); err != nil {
		cancel()
		return &writeError{err}
	}
	e.st.Files = append(e.st.Files, EventsFile)
	e.cancel, e.done, e.first = cancel, make(chan struct{}), make(chan struct{})
	go e.record(ctx, rd)
	// What the service retained should be before the first request, if there is any.
	select {
	case <-e.first:
	case <-time.After(retainedWait):
	}
	return nil
}

func (e *events) connect(ctx context.Context) (*bufio.Reader, error) {
	head, cancel := context.WithTimeout(ctx, e.ep.timeout) // the stream itself may last
	defer cancel()
	resp, err := e.ep.ask(head, http.MethodGet, e.path, maxEventBytes) //nolint:bodyclose // it would read on; the connection is closed instead
	if err != nil {
		e.ep.close()
		return nil, e.ep.plain(head, err)
	}
	e.ep.leave()
	if resp.StatusCode != http.StatusOK {
		e.ep.close()
		return nil, &statusError{status: resp.StatusCode}
	}
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		e.ep.close()
		return nil, fmt.Errorf("answers with %q, not with a stream of events", kind)
	}
	nc := e.ep.nc
	e.ep.unwatch = context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	e.refresh(ctx)
	return bufio.NewReaderSize(resp.Body, 64<<10), nil
}

// refresh allows for more bytes and more time.
func (e *events) refresh(ctx context.Context) {
	e.ep.limit.N = 4 * maxEventBytes
	_ = e.ep.nc.SetDeadline(time.Now().Add(eventSilence))
	if ctx.Err() != nil {
		_ = e.ep.nc.SetDeadline(time.Unix(1, 0))
	}
}

// record reads events until ctx ends, and connects again when the stream breaks.
func (e *events) record(ctx context.Context, rd *bufio.Reader) {
	defer close(e.done)
	defer lockThread(&e.cpu)()
	for {
		ev, err := ReadEvent(rd, maxEventBytes, func() { e.refresh(ctx) })
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			e.keep(time.Now(), ev)
			continue
		case errors.Is(err, io.EOF):
			err = errors.New("the stream ended")
		default:
			err = e.ep.plain(ctx, err)
		}
		e.fault(err)
		e.ep.close()
		if rd = e.again(ctx); rd == nil {
			return
		}
	}
}

// again connects until it succeeds or ctx ends. What the service retained comes
// again then: the file says where.
func (e *events) again(ctx context.Context) *bufio.Reader {
	for wait := reconnectWait; ; wait = min(2*wait, 30*time.Second) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		rd, err := e.connect(ctx)
		if err == nil {
			_ = e.out.add(time.Now(), []byte(`"reconnected":true`))
			return rd
		}
		e.fault(err)
	}
}

func (e *events) fault(err error) {
	e.mu.Lock()
	e.errors++
	e.err = err.Error()
	e.mu.Unlock()
	_ = e.out.add(time.Now(), member(nil, "error", e.hide(err.Error())))
}

func (e *events) keep(at time.Time, ev Event) {
	b := member(nil, "event", e.hide(ev.Name))
	text := e.hide(string(ev.Data))
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(text)) == nil {
		b = append(append(b, `,"data":`...), compact.Bytes()...)
	} else {
		b = member(append(b, ','), "text", strings.ToValidUTF8(text, "\uFFFD"))
	}
	_ = e.out.add(at, b) // what it could not write it says at the end
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count++; e.count == 1 {
		close(e.first)
	}
}

func (e *events) look(context.Context, when) error { return nil }

func (e *events) after(context.Context) error {
	e.stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.st.Errors += e.errors
	if e.err != "" {
		e.st.LastError = e.err
	}
	return nil
}

func (e *events) stop() {
	if e.done == nil {
		return
	}
	e.cancel()
	<-e.done
}

func (e *events) finish() error {
	e.stop()
	e.ep.close()
	if e.out == nil {
		return nil
	}
	return e.out.close()
}

func (e *events) summarize(out *schemas.Observed) {
	n := float64(e.count)
	e.st.Looks = e.count
	out.Values["events"] = schemas.Value{Unit: "events", Value: &n}
}
