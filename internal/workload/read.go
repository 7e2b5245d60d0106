package workload

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"assay/internal/durable"
	"assay/schemas"
)

// Limits of a file and of one row.
const (
	DefaultMaxRows  = 10_000_000
	maxLineBytes    = 16 << 10
	maxTokens       = 10_000_000
	maxOffset       = 366 * 24 * time.Hour
	maxNameBytes    = 1024
	synthHeader     = "Request Time,Model Name,Input Length,Output Length"
	requestsHeader  = "request_id,timestamp,input_tokens,output_tokens"
	purposeAssign   = "workload/assign-models"
	twoColumnHeader = "Request Time,Model Name"
)

// Options say how to read what the file itself does not say.
type Options struct {
	// Name stands in errors for the file; ReadFile sets it.
	Name string
	// Unit of the bare timestamp column of FormAegaeonRequests: "s" or "ms".
	Unit string
	// Models are assigned at random, from Seed, to the requests of
	// FormAegaeonRequests, which names none.
	Models []string
	Seed   uint64
	// MaxRows is the most requests accepted; 0 means DefaultMaxRows.
	MaxRows int
}

// SyntaxError says what is wrong in a file and where.
type SyntaxError struct {
	File   string
	Line   int
	Column int // byte in the line, from 1; 0 when the whole line is meant
	Text   string
}

func (e *SyntaxError) Error() string {
	if e.Column > 0 {
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
	}
	return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
}

// ReadFile reads the workload at path.
func ReadFile(path string, opts Options) (Workload, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return Workload{}, fmt.Errorf("workload: %w", err)
	}
	defer f.Close()
	if opts.Name == "" {
		opts.Name = path
	}
	return Read(f, opts)
}

// Read reads a workload of either form, row by row. Errors in the content are
// *SyntaxError.
func Read(r io.Reader, opts Options) (Workload, error) {
	if opts.Name == "" {
		opts.Name = "workload"
	}
	if opts.MaxRows <= 0 {
		opts.MaxRows = DefaultMaxRows
	}
	hash := sha256.New()
	in := &lines{r: bufio.NewReaderSize(io.TeeReader(r, hash), maxLineBytes), file: opts.Name}
	p := &parser{opts: opts, lines: in, ids: map[string]int{}}
	w, err := p.read()
	if err != nil {
		return Workload{}, err
	}
	w.Digest = schemas.DigestFromSum(hash.Sum(nil))
	return w, nil
}

// lines hands out lines without their ends, bounded in length.
type lines struct {
	r    *bufio.Reader
	file string
	n    int
}

func (l *lines) next() (string, error) {
	b, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", l.fail(l.n+1, 0, "line is longer than %d bytes; is this a workload CSV?", maxLineBytes)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("workload: read %s: %w", l.file, err)
	}
	if len(b) == 0 {
		return "", io.EOF
	}
	l.n++
	if l.n == 1 {
		b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	b = bytes.TrimSuffix(b, []byte("\r"))
	if !utf8.Valid(b) {
		return "", l.fail(l.n, 0, "not valid UTF-8; save the file as UTF-8")
	}
	return string(b), nil
}

func (l *lines) fail(line, column int, format string, args ...any) error {
	return &SyntaxError{File: l.file, Line: line, Column: column, Text: fmt.Sprintf(format, args...)}
}

type parser struct {
	opts  Options
	lines *lines
	form  Form
	rng   *rand.Rand
	ids   map[string]int // id -> line
	w     Workload
}

func (p *parser) read() (Workload, error) {
	header, err := p.lines.next()
	if errors.Is(err, io.EOF) {
		return Workload{}, p.lines.fail(1, 0, "the file is empty; want the header %q or %q", synthHeader, requestsHeader)
	}
	if err != nil {
		return Workload{}, err
	}
	if err := p.header(header); err != nil {
		return Workload{}, err
	}
	p.w.Form = p.form
	blank := 0
	for {
		line, err := p.lines.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Workload{}, err
		}
		if line == "" {
			blank = p.lines.n
			continue
		}
		if blank != 0 {
			return Workload{}, p.lines.fail(blank, 0, "blank line between rows; remove it")
		}
		if err := p.row(line); err != nil {
			return Workload{}, err
		}
	}
	if len(p.w.Requests) == 0 {
		return Workload{}, p.lines.fail(p.lines.n, 0, "no request after the header; a workload needs at least one row")
	}
	return p.w, nil
}

func (p *parser) header(h string) error {
	switch h {
	case synthHeader:
		p.form = FormAegaeonSynth
		return nil
	case requestsHeader:
		p.form = FormAegaeonRequests
		return p.requestsOptions()
	case twoColumnHeader:
		return p.lines.fail(1, 0, "the two-column form has no lengths; use a file with the header %q", synthHeader)
	}
	return p.lines.fail(1, 0, "unknown header %s; want exactly %q or %q", quoted(h), synthHeader, requestsHeader)
}

func (p *parser) requestsOptions() error {
	if p.opts.Unit != "s" && p.opts.Unit != "ms" {
		return p.lines.fail(1, 0, "this form does not say the unit of its timestamps; give \"s\" or \"ms\" (have %q)", p.opts.Unit)
	}
	if len(p.opts.Models) == 0 {
		return p.lines.fail(1, 0, "this form names no models; give the models to assign its requests to")
	}
	p.rng = NewRand(p.opts.Seed, purposeAssign)
	return nil
}

// field is one cell and the column it starts in.
type field struct {
	text string
	col  int
}

func (p *parser) fields(line string) ([4]field, error) {
	var out [4]field
	n := p.lines.n
	parts := strings.Split(line, ",")
	if strings.Contains(line, `"`) {
		rec, err := csv.NewReader(strings.NewReader(line)).Read()
		if err != nil {
			return out, p.lines.fail(n, 0, "bad quoting; write plain values separated by commas")
		}
		parts = rec
	}
	if len(parts) != len(out) {
		return out, p.lines.fail(n, 0, "%d columns; want 4 as in the header", len(parts))
	}
	col := 1
	for i, s := range parts {
		out[i] = field{text: s, col: col}
		col += len(s) + 1
	}
	return out, nil
}

func (p *parser) row(line string) error {
	if len(p.w.Requests) >= p.opts.MaxRows {
		return p.lines.fail(p.lines.n, 0, "more than %d requests; cut the file", p.opts.MaxRows)
	}
	f, err := p.fields(line)
	if err != nil {
		return err
	}
	req, at := Request{}, f[0]
	if p.form == FormAegaeonSynth {
		req, err = p.synthRow(f)
	} else {
		at = f[1]
		req, err = p.requestsRow(f)
	}
	if err != nil {
		return err
	}
	if req.InputTokens, err = p.length(f[2], "input"); err != nil {
		return err
	}
	if req.OutputTokens, err = p.length(f[3], "output"); err != nil {
		return err
	}
	if k := len(p.w.Requests); k > 0 && req.AtNs < p.w.Requests[k-1].AtNs {
		return p.lines.fail(p.lines.n, at.col, "time %s is before the row above; sort the file by time", quoted(at.text))
	}
	p.w.Requests = append(p.w.Requests, req)
	return nil
}

func (p *parser) synthRow(f [4]field) (Request, error) {
	at, err := parseClock(f[0].text)
	if err != nil {
		return Request{}, p.lines.fail(p.lines.n, f[0].col, "time %s: %v; want HH:MM:SS.mmm", quoted(f[0].text), err)
	}
	model := f[1].text
	if err := checkName(model); err != nil {
		return Request{}, p.lines.fail(p.lines.n, f[1].col, "model name %s %v", quoted(model), err)
	}
	// The published form has no ids; rows are numbered from 0, as its tools do.
	return Request{ID: strconv.Itoa(len(p.w.Requests)), AtNs: at, Model: model}, nil
}

func (p *parser) requestsRow(f [4]field) (Request, error) {
	id := f[0].text
	if err := checkName(id); err != nil {
		return Request{}, p.lines.fail(p.lines.n, f[0].col, "request_id %s %v", quoted(id), err)
	}
	if line, dup := p.ids[id]; dup {
		return Request{}, p.lines.fail(p.lines.n, f[0].col, "request_id %s is already on line %d; ids must be unique", quoted(id), line)
	}
	p.ids[id] = p.lines.n
	at, err := parseStamp(f[1].text, p.opts.Unit)
	if err != nil {
		return Request{}, p.lines.fail(p.lines.n, f[1].col, "timestamp %s: %v", quoted(f[1].text), err)
	}
	return Request{ID: id, AtNs: at, Model: p.opts.Models[p.rng.IntN(len(p.opts.Models))]}, nil
}

func (p *parser) length(f field, what string) (int, error) {
	n, err := strconv.Atoi(f.text)
	if err != nil || f.text[0] == '+' {
		return 0, p.lines.fail(p.lines.n, f.col, "%s length %s is not a whole number; want 1 or more tokens", what, quoted(f.text))
	}
	if n < 1 || n > maxTokens {
		return 0, p.lines.fail(p.lines.n, f.col, "%s length %d is out of range; want 1 to %d tokens", what, n, maxTokens)
	}
	return n, nil
}

func checkName(s string) error {
	switch {
	case s == "":
		return errors.New("is empty; give it a value")
	case len(s) > maxNameBytes:
		return fmt.Errorf("is longer than %d bytes; shorten it", maxNameBytes)
	case strings.TrimSpace(s) != s:
		return errors.New("has white space around it; remove it")
	}
	for _, c := range s {
		if c < ' ' || c == 0x7f {
			return errors.New("has a control character; remove it")
		}
	}
	return nil
}

// parseClock reads an offset HH:MM:SS with up to nine decimals.
func parseClock(s string) (int64, error) {
	hms, frac, hasFrac := strings.Cut(s, ".")
	parts := strings.Split(hms, ":")
	if len(parts) != 3 || len(parts[0]) < 2 || len(parts[0]) > 4 || len(parts[1]) != 2 || len(parts[2]) != 2 {
		return 0, errors.New("not an offset from the start")
	}
	var v [3]int64
	for i, t := range parts {
		n, ok := digits(t)
		if !ok || (i > 0 && n > 59) {
			return 0, errors.New("hours, minutes or seconds are no number in range")
		}
		v[i] = n
	}
	ns := ((v[0]*60+v[1])*60 + v[2]) * int64(time.Second)
	if hasFrac {
		f, ok := decimals(frac)
		if !ok {
			return 0, errors.New("the part after the point is not 1 to 9 digits")
		}
		ns += f
	}
	if ns > int64(maxOffset) {
		return 0, fmt.Errorf("beyond the limit of %s", maxOffset)
	}
	return ns, nil
}

func digits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// decimals reads the digits after a point as billionths.
func decimals(s string) (int64, bool) {
	if len(s) > 9 {
		return 0, false
	}
	n, ok := digits(s)
	for i := len(s); i < 9; i++ {
		n *= 10
	}
	return n, ok
}

// parseStamp reads a bare number in seconds or milliseconds, to the nanosecond.
func parseStamp(s, unit string) (int64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(s, "xX_+") {
		return 0, errors.New("not a finite decimal number")
	}
	if f < 0 {
		return 0, errors.New("negative; times count from the start")
	}
	scale := float64(time.Second)
	if unit == "ms" {
		scale = float64(time.Millisecond)
	}
	if f*scale > float64(maxOffset) {
		return 0, fmt.Errorf("more than %s in unit %q; check the unit, or make times relative to the start", maxOffset, unit)
	}
	return int64(math.Round(f * scale)), nil
}

func quoted(s string) string {
	if len(s) > 80 {
		return strconv.Quote(strings.ToValidUTF8(s[:80], "")) + "..."
	}
	return strconv.Quote(s)
}
