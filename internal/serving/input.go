package serving

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"assay/internal/durable"
	"assay/internal/workload"
	"assay/schemas"
)

// RequestsHeader is the form of a workload with every length and base model
// decided, in the order in which a simulation submits the requests.
const RequestsHeader = "request_id,model,base_model,arrival_ms,input_tokens,output_tokens"

const (
	maxRows      = 10_000_000
	maxLineBytes = 16 << 10
	maxNameBytes = 1024
	maxTokens    = 10_000_000
)

// Input is a workload as a simulation takes it.
type Input struct {
	IDs      []string // by Request.Index
	Models   []Alias  // by Request.Model, in order of appearance
	Requests []Request
}

// Alias is a served model and what it is an alias of.
type Alias struct {
	Name string
	Base string
}

// BaseModels lists the distinct base models, in order of appearance.
func (in Input) BaseModels() ([]BaseModel, error) {
	var out []BaseModel
	for _, a := range in.Models {
		if slices.ContainsFunc(out, func(m BaseModel) bool { return m.Name == a.Base }) {
			continue
		}
		m, err := FindBaseModel(a.Base)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", a.Name, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// Served joins the aliases with the fits of their base models.
func (in Input) Served(fits map[string]Fit) ([]Served, error) {
	var out []Served
	for _, a := range in.Models {
		base, err := FindBaseModel(a.Base)
		if err != nil {
			return nil, fmt.Errorf("model %s: %w", a.Name, err)
		}
		fit, ok := fits[a.Base]
		if !ok {
			return nil, fmt.Errorf("model %s: there are no latencies of %s", a.Name, a.Base)
		}
		out = append(out, Served{Name: a.Name, Base: base, Fit: fit})
	}
	return out, nil
}

// ReadInput reads a workload file of the decided form (RequestsHeader) or of any
// form of arrivals; there, base models follow the order in which models appear
// (AliasBase), and times are rounded down to milliseconds. Options are as for
// workload.Read.
func ReadInput(path string, opts workload.Options) (Input, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return Input{}, fmt.Errorf("workload: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, maxLineBytes)
	start, err := r.Peek(len(RequestsHeader))
	if err != nil && !errors.Is(err, io.EOF) {
		return Input{}, fmt.Errorf("workload: read %s: %w", path, err)
	}
	if opts.Name == "" {
		opts.Name = path
	}
	if string(start) == RequestsHeader {
		return readDecided(r, opts.Name)
	}
	w, err := workload.Read(r, opts)
	if err != nil {
		return Input{}, err
	}
	return FromWorkload(w)
}

// FromWorkload takes a workload as arrivals of aliases. One that does not say when
// its requests come, or how long they are, cannot be simulated.
func FromWorkload(w workload.Workload) (Input, error) {
	if !w.Form.Timed() {
		return Input{}, fmt.Errorf("workload: a file of form %s has no arrivals to simulate: give one with times and lengths", w.Form)
	}
	b := newBuilder()
	for _, r := range w.Requests {
		if r.InputTokens < 1 || r.OutputTokens < 1 {
			return Input{}, fmt.Errorf("workload: request %s states lengths %d and %d: a simulation needs both, of 1 or more", r.ID, r.InputTokens, r.OutputTokens)
		}
		m, ok := b.index[r.Model]
		if !ok {
			m = b.alias(r.Model, AliasBase(len(b.in.Models)))
		}
		b.add(r.ID, Request{Model: m, AtMs: r.AtNs / int64(time.Millisecond), InputTokens: r.InputTokens, OutputTokens: r.OutputTokens})
	}
	return b.in, nil
}

// Cut keeps the arrivals in [from, to) of the workload's own time, from its new
// zero, and makes them speed times faster. A to of 0 keeps all, a speed of 0 is 1.
// Models keep their numbers, and so their base models.
func (in Input) Cut(from, to time.Duration, speed float64) (Input, error) {
	if speed == 0 {
		speed = 1
	}
	if to == 0 && speed == 1 {
		return in, nil
	}
	if !(speed >= 1e-6 && speed <= 1e6) {
		return Input{}, fmt.Errorf("workload: speed %s is out of range: want 0.000001 to 1000000", schemas.Decimal(speed))
	}
	if to != 0 && (from < 0 || to <= from) {
		return Input{}, fmt.Errorf("workload: window [%s, %s) is empty: give a start of 0s or later and an end after it", from, to)
	}
	out := Input{Models: in.Models}
	for i, r := range in.Requests {
		at := time.Duration(r.AtMs) * time.Millisecond
		if to != 0 && (at < from || at >= to) {
			continue
		}
		r.AtMs = int64(math.Round(float64((at - from).Milliseconds()) / speed))
		r.Index = len(out.Requests)
		out.Requests = append(out.Requests, r)
		out.IDs = append(out.IDs, in.IDs[in.Requests[i].Index])
	}
	if len(out.Requests) == 0 {
		return Input{}, fmt.Errorf("workload: no request arrives in the window [%s, %s)", from, to)
	}
	return out, nil
}

// builder numbers models and requests.
type builder struct {
	in    Input
	index map[string]int
	ids   map[string]bool
}

func newBuilder() *builder { return &builder{index: map[string]int{}, ids: map[string]bool{}} }

func (b *builder) alias(name, base string) int {
	n := len(b.in.Models)
	b.index[name] = n
	b.in.Models = append(b.in.Models, Alias{Name: name, Base: base})
	return n
}

func (b *builder) add(id string, r Request) {
	r.Index = len(b.in.Requests)
	b.in.Requests = append(b.in.Requests, r)
	b.in.IDs = append(b.in.IDs, id)
}

// readDecided reads the decided form, the header included. Requests are brought
// in order of time, those of one time as the file has them.
func readDecided(r *bufio.Reader, name string) (Input, error) {
	b := newBuilder()
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return Input{}, fmt.Errorf("%s:%d: line is longer than %d bytes", name, n, maxLineBytes)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return Input{}, fmt.Errorf("workload: read %s: %w", name, err)
		}
		if len(line) == 0 {
			break
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		if n == 1 {
			if text != RequestsHeader {
				return Input{}, fmt.Errorf("%s:1: want the header %q", name, RequestsHeader)
			}
			continue
		}
		if err := b.row(text); err != nil {
			return Input{}, fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	if len(b.in.Requests) == 0 {
		return Input{}, fmt.Errorf("%s:1: no request after the header; a workload needs at least one row", name)
	}
	slices.SortStableFunc(b.in.Requests, func(x, y Request) int { return int(x.AtMs - y.AtMs) })
	return b.in, nil
}

func (b *builder) row(text string) error {
	f := strings.Split(text, ",")
	switch {
	case len(f) != 6:
		return fmt.Errorf("%d columns; want 6 as in the header", len(f))
	case len(b.in.Requests) >= maxRows:
		return fmt.Errorf("more than %d requests; cut the file", maxRows)
	}
	for i, what := range []string{"request_id", "model", "base_model"} {
		if err := checkName(f[i]); err != nil {
			return fmt.Errorf("%s %.40q %w", what, f[i], err)
		}
	}
	if b.ids[f[0]] {
		return fmt.Errorf("request_id %q appears twice; ids must be unique", f[0])
	}
	b.ids[f[0]] = true
	m, ok := b.index[f[1]]
	if !ok {
		if _, err := FindBaseModel(f[2]); err != nil {
			return err
		}
		m = b.alias(f[1], f[2])
	}
	if base := b.in.Models[m].Base; base != f[2] {
		return fmt.Errorf("model %q is an alias of %s above, of %s here", f[1], base, f[2])
	}
	r := Request{Model: m}
	var err error
	if r.AtMs, err = number("arrival_ms", f[3], 0, math.MaxInt32*1000); err != nil {
		return err
	}
	in, err := number("input_tokens", f[4], 1, maxTokens)
	if err != nil {
		return err
	}
	out, err := number("output_tokens", f[5], 1, maxTokens)
	if err != nil {
		return err
	}
	r.InputTokens, r.OutputTokens = int(in), int(out)
	b.add(f[0], r)
	return nil
}

func number(what, s string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || s[0] == '+' {
		return 0, fmt.Errorf("%s %.40q is not a whole number", what, s)
	}
	if n < low || n > high {
		return 0, fmt.Errorf("%s %d is out of range; want %d to %d", what, n, low, high)
	}
	return n, nil
}

func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; give it a value")
	case len(s) > maxNameBytes || !utf8.ValidString(s):
		return fmt.Errorf("is not valid UTF-8 of at most %d bytes", maxNameBytes)
	case strings.TrimSpace(s) != s || strings.ContainsAny(s, `"`):
		return errors.New("has white space around it, or a quote; write the plain value")
	case strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return errors.New("has a control character; remove it")
	}
	return nil
}
