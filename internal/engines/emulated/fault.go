package emulated

import (
	"errors"
	"net/http"
	"os"
	"time"
	"unicode/utf8"
)

// The faults, as schemas.Engines lists them.
const (
	faultDie       = "die"        // the process is killed amid an answer
	faultHang      = "hang"       // the answer stops, the connection stays
	faultRefuse    = "refuse"     // the listener closes
	faultSSEError  = "sse_error"  // an error event after status 200
	faultCut       = "cut"        // the connection ends amid an answer
	faultSplitUTF8 = "split_utf8" // characters arrive in parts
	faultHTTP500   = "http_500"   //
	faultHTTP429   = "http_429"   //
	faultNoDone    = "no_done"    // the stream ends without [DONE]
	faultSlowStart = "slow_start" // the listener opens late
	faultLieUsage  = "lie_usage"  // usage states other counts
)

// splitPause lies between the parts of a split character, so that they reach the
// client in separate reads.
const splitPause = time.Millisecond

var (
	// errFault says that the answer ended as the fault wants it.
	errFault = errors.New("fault")
	// errCut asks for the connection to be broken.
	errCut = errors.New("cut")
)

func (f *Fault) is(kind string) bool { return f != nil && f.Kind == kind }

// at returns after how many of n tokens the answer breaks off, if it does.
func (f *Fault) at(n int) (int, bool) {
	if f == nil {
		return 0, false
	}
	switch f.Kind {
	case faultDie, faultHang, faultCut, faultSSEError:
		return min(f.AfterTokens, n), true
	}
	return 0, false
}

// faultOf returns the fault of the number-th generation request, from 1.
func (s *server) faultOf(number int64) *Fault {
	if f := s.config.Fault; f != nil && number > int64(f.AfterRequests) {
		return f
	}
	return nil
}

// rejects carries out the faults that answer nothing. To be sure that whoever
// waits for the last proper answer meets a closed listener afterwards, "refuse"
// closes it when that request arrives.
func (s *server) rejects(w http.ResponseWriter, fault *Fault, number int64) bool {
	if f := s.config.Fault; f.is(faultRefuse) && number >= int64(f.AfterRequests) {
		s.refuse.Do(func() {
			s.http.SetKeepAlivesEnabled(false)
			s.listener.Close()
		})
	}
	switch {
	case fault.is(faultRefuse):
		panic(http.ErrAbortHandler)
	case fault.is(faultHTTP500):
		writeError(w, &apiError{status: http.StatusInternalServerError, Type: "internal_server_error", Message: "fault http_500"})
	case fault.is(faultHTTP429):
		w.Header().Set("Retry-After", "1")
		writeError(w, (&apiError{Type: "rate_limit_error", Message: "fault http_429"}).withCode(http.StatusTooManyRequests, "rate_limit_exceeded"))
	default:
		return false
	}
	return true
}

// breakOff ends an answer in the way of the fault.
func (g *generation) breakOff() error {
	switch g.fault.Kind {
	case faultDie:
		g.s.opts.Die()
	case faultHang:
		<-g.http.Context().Done()
	case faultCut:
		return errCut
	case faultSSEError:
		e := &apiError{status: http.StatusInternalServerError, Type: "internal_server_error", Message: "fault sse_error"}
		if !g.req.stream {
			writeError(g.w, e)
			return errFault
		}
		b := append([]byte("data: "), encode(map[string]any{"error": e})...)
		if err := g.write(append(b, "\n\ndata: [DONE]\n\n"...)); err != nil {
			return err
		}
	}
	return errFault
}

// splitRunes cuts b inside every character of several bytes.
func splitRunes(b []byte) [][]byte {
	var out [][]byte
	from := 0
	for i := 0; i < len(b); {
		_, size := utf8.DecodeRune(b[i:])
		if size > 1 {
			out = append(out, b[from:i+1])
			from = i + 1
		}
		i += size
	}
	return append(out, b[from:])
}

// killSelf is a death without warning.
func killSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {} // until it takes effect
}
