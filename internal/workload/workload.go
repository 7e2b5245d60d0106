package workload

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"assay/schemas"
)

// Workload is a list of arrivals in order of time.
type Workload struct {
	Form     Form
	Requests []Request
	// Digest is of the file's bytes, empty for one that was never a file.
	Digest schemas.Digest
	// BlockTokens is the length of the blocks that Request.Blocks names.
	BlockTokens int
	// Reading is the account of the file's reading.
	Reading schemas.Reading
	// names are those of the whole file, of which Requests may be a window.
	names map[string]bool
	talks int // conversations seen
}

// Request is one arrival. AtNs counts from the workload's own zero.
type Request struct {
	ID           string
	AtNs         int64
	Model        string
	InputTokens  int
	OutputTokens int // 0: the file does not state it
	// Conversation and Turn, from 0, are set where turns of a conversation follow each
	// other; they stand together.
	Conversation string
	Turn         int
	// Prompt holds a given text, or shared blocks; InputTokens is 0 for a text.
	Prompt
}

// Models returns the distinct model names of the whole file, sorted.
func (w Workload) Models() []string {
	seen := maps.Clone(w.names)
	if seen == nil {
		seen = map[string]bool{}
	}
	for _, r := range w.Requests {
		seen[r.Model] = true
	}
	out := make([]string, 0, len(seen))
	for m := range seen {
		out = append(out, m)
	}
	sort.Strings(out)
	return out
}

// SpanNs is the time of the last arrival, from the workload's own zero.
func (w Workload) SpanNs() int64 {
	if len(w.Requests) == 0 {
		return 0
	}
	return w.Requests[len(w.Requests)-1].AtNs
}

// Window keeps the arrivals in [from, to) of the workload's own time and makes
// from the new zero. An empty selection is an error.
func (w Workload) Window(from, to time.Duration) (Workload, error) {
	if from < 0 || to <= from {
		return Workload{}, fmt.Errorf("workload: window [%s, %s) is empty: give a start of 0s or later and an end after it", from, to)
	}
	out := w
	out.Requests = nil
	for _, r := range w.Requests {
		if r.AtNs >= int64(from) && r.AtNs < int64(to) {
			r.AtNs -= int64(from)
			out.Requests = append(out.Requests, r)
		}
	}
	if len(out.Requests) == 0 {
		last := ""
		if w.Reading.Verdict != "" {
			last = fmt.Sprintf(" (%s)", w.Reading.Verdict)
		} else if len(w.Requests) > 0 {
			last = fmt.Sprintf(": the last of %d arrives at %s", len(w.Requests), time.Duration(w.SpanNs()))
		}
		return Workload{}, fmt.Errorf("workload: no request arrives in the window [%s, %s)%s", from, to, last)
	}
	return out, nil
}

// Speed makes the arrivals factor times faster (2 halves every time). Lengths
// stay, so latencies relative to arrivals are not comparable with speed 1.
func (w Workload) Speed(factor float64) (Workload, error) {
	if math.IsNaN(factor) || factor < 1e-6 || factor > 1e6 {
		return Workload{}, fmt.Errorf("workload: speed %s is out of range: want 0.000001 to 1000000", schemas.Decimal(factor))
	}
	if factor == 1 {
		return w, nil
	}
	out := w
	out.Requests = slices.Clone(w.Requests)
	for i := range out.Requests {
		at := math.Round(float64(out.Requests[i].AtNs) / factor)
		if at > float64(math.MaxInt64/2) {
			return Workload{}, fmt.Errorf("workload: speed %s puts request %s beyond the range of the clock", schemas.Decimal(factor), out.Requests[i].ID)
		}
		out.Requests[i].AtNs = int64(at)
	}
	return out, nil
}

// Mapping says how workload models become service models.
type Mapping struct {
	From, To string
}

// AssignModels renames the workload's models, in sorted order, to the service's
// models, in the order given; where the service has all of them by name they keep
// their names. More workload models than service models is an
// error unless wrap is set; then the service's models are used in turns. A
// workload of a form that names no models was assigned when it was read and is
// only checked.
func (w Workload) AssignModels(service []string, wrap bool) (Workload, []Mapping, error) {
	if len(service) == 0 {
		return Workload{}, nil, fmt.Errorf("workload: the service has no models to send requests to")
	}
	names := w.Models()
	to := map[string]string{}
	var maps []Mapping
	same := !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(service, n) })
	for i, n := range names {
		switch {
		case same:
			to[n] = n // the service has every one of them by name
		case w.Form != "" && !w.Form.NamesModels() && slices.Contains(service, n):
			to[n] = n
		case w.Form != "" && !w.Form.NamesModels():
			return Workload{}, nil, fmt.Errorf("workload: model %q was assigned when the file was read, but the service does not have it", n)
		case i < len(service) || wrap:
			to[n] = service[i%len(service)]
		default:
			return Workload{}, nil, fmt.Errorf("workload: it has %d models, the service has %d: serve as many, or ask for models to be shared",
				len(names), len(service))
		}
		maps = append(maps, Mapping{From: n, To: to[n]})
	}
	out := w
	out.names = map[string]bool{} // renamed, the names of the requests are all there are
	out.Requests = slices.Clone(w.Requests)
	for i := range out.Requests {
		out.Requests[i].Model = to[out.Requests[i].Model]
	}
	return out, maps, nil
}
