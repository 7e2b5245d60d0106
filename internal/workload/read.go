package workload

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// Limits of a file and of one row.
const (
	DefaultMaxRows = 10_000_000
	maxLineBytes   = 16 << 10 // of a table
	maxJSONBytes   = 16 << 20 // of a line of JSON or of text
	maxTokens      = 10_000_000
	maxOffset      = 366 * 24 * time.Hour
	maxNameBytes   = 1024
	PurposeAssign  = "workload/assign-models"
)

// What becomes of rows over a length limit.
const (
	OverRefuse = "refuse"
	OverDrop   = "drop"
	OverClip   = "clip"
)

// Options say how to read what the file itself does not say.
type Options struct {
	// Name stands in errors for the file; ReadFile sets it.
	Name string
	// Form of the file; empty: told from its first lines.
	Form Form
	// Unit of bare timestamps, "s", "ms" or "us"; empty: the form's own.
	Unit string
	// Models are assigned at random, from Seed, to the requests of a form that
	// names none.
	Models []string
	Seed   uint64
	// Turns is how many turns of each conversation of a form that has them become
	// requests; 0 means the first only, which then belongs to no conversation.
	Turns int
	// From and To keep only the arrivals in [From, To) of the workload's own time in
	// memory; the whole file is read and judged all the same. A To of 0 keeps all.
	From, To time.Duration
	// MaxRows is the most requests kept; 0 means DefaultMaxRows.
	MaxRows int
	// MaxInput, MaxOutput and MaxTotal limit the tokens of a request, 0 does not;
	// Over says what becomes of a request beyond one, OverRefuse when empty. A
	// prompt given as text has no length that could be limited.
	MaxInput, MaxOutput, MaxTotal int
	Over                          string
}

// SyntaxError says what is wrong in a file and where.
type SyntaxError struct {
	File   string
	Line   int
	Column int // byte in the line, from 1; 0 when the whole line is meant
	Text   string
	// Final says that nothing after it can be judged, because the file is not made
	// of lines.
	Final bool
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

// Read reads a workload of any form, row by row. Errors in the content are
// *SyntaxError.
func Read(r io.Reader, opts Options) (Workload, error) {
	if opts.Name == "" {
		opts.Name = "workload"
	}
	if opts.MaxRows <= 0 {
		opts.MaxRows = DefaultMaxRows
	}
	hash := sha256.New()
	in := &lines{r: bufio.NewReaderSize(io.TeeReader(r, hash), maxLineBytes), file: opts.Name, max: maxLineBytes}
	p := &parser{opts: opts, lines: in, ids: map[string]int{}, w: Workload{names: map[string]bool{}}}
	if err := p.read(); err != nil {
		return Workload{}, err
	}
	// A reader of values may stop before the end of the file.
	if _, err := io.Copy(io.Discard, in.r); err != nil {
		return Workload{}, fmt.Errorf("workload: read %s: %w", opts.Name, err)
	}
	p.w.Digest = schemas.DigestFromSum(hash.Sum(nil))
	return p.w, nil
}

type parser struct {
	opts  Options
	lines *lines
	form  Form
	unit  string
	rng   *rand.Rand
	ids   map[string]int // id -> line
	rows  int
	first int64 // time of the first row
	last  int64 // and of the newest
	w     Workload
}

func (p *parser) read() error {
	if err := p.start(); err != nil {
		return err
	}
	row, err := p.rowReader()
	if err != nil {
		return err
	}
	if row == nil {
		err = p.shareGPT()
	} else {
		err = p.eachLine(row)
	}
	if err != nil {
		return err
	}
	if p.w.Reading.Kept == 0 {
		left := ""
		if p.rows > 0 {
			left = fmt.Sprintf(" (of %d rows, %d were over a limit and %d had no usable request)", p.rows, p.w.Reading.Dropped, p.w.Reading.Failed)
		}
		return p.lines.fail(max(p.lines.n, 1), 0, "no request after the header; a workload needs at least one row%s", left)
	}
	p.account()
	return nil
}

// eachLine calls row for every line but blank ones, which may stand at the end
// only, except between texts.
func (p *parser) eachLine(row func(string) error) error {
	blank := 0
	for {
		line, err := p.lines.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line == "" {
			blank = p.lines.n
			continue
		}
		if blank != 0 && p.form != FormText {
			return p.lines.fail(blank, 0, "blank line between rows; remove it")
		}
		if err := row(line); err != nil {
			return err
		}
	}
}

// add takes one request, in the order of the file, whose time stands in at.
func (p *parser) add(req Request, at field) error {
	n := p.lines.n
	if req.ID == "" {
		// Rows without ids are numbered from 0 as they stand in the file, as the
		// tools of the published forms do.
		req.ID = strconv.Itoa(p.rows)
	}
	p.rows++
	if req.AtNs < p.last {
		return p.lines.fail(n, at.col, "time %s is before the row above; sort the file by time", quoted(at.text))
	}
	if p.last = req.AtNs; p.rows == 1 {
		p.first = req.AtNs
	}
	if req.Model == "" {
		// Drawn for every row, kept or not: limits move no other row's model.
		req.Model = p.opts.Models[p.rng.IntN(len(p.opts.Models))]
	}
	keep, err := p.limit(&req)
	if err != nil || !keep {
		return err
	}
	p.w.Reading.Kept++
	p.w.names[req.Model] = true
	if p.opts.To > 0 && (req.AtNs < int64(p.opts.From) || req.AtNs >= int64(p.opts.To)) {
		return nil
	}
	if len(p.w.Requests) >= p.opts.MaxRows {
		return p.lines.fail(n, 0, "more than %d requests; cut the file, or take a window of it", p.opts.MaxRows)
	}
	p.w.Requests = append(p.w.Requests, req)
	return nil
}

// limit applies the policy for lengths over a limit; false leaves the row out.
func (p *parser) limit(r *Request) (bool, error) {
	o := p.opts
	in, out := r.InputTokens, r.OutputTokens
	if o.MaxInput > 0 {
		in = min(in, o.MaxInput)
	}
	if o.MaxOutput > 0 {
		out = min(out, o.MaxOutput)
	}
	if o.MaxTotal > 0 && in+out > o.MaxTotal {
		// The output says how long the request lasts: the prompt is cut first.
		in = max(o.MaxTotal-out, min(in, 1))
		out = min(out, o.MaxTotal-in)
	}
	if in == r.InputTokens && out == r.OutputTokens {
		return true, nil
	}
	switch o.Over {
	case OverDrop:
		p.w.Reading.Dropped++
		return false, nil
	case OverClip:
		p.w.Reading.Clipped++
		r.InputTokens, r.OutputTokens = in, out
		return true, nil
	}
	return false, p.lines.fail(p.lines.n, 0, "prompt of %d and output of %d tokens are over a limit (max_input %d, max_output %d, max_total %d; 0 is none): raise it, or drop or clip such rows",
		r.InputTokens, r.OutputTokens, o.MaxInput, o.MaxOutput, o.MaxTotal)
}

// account sums the reading up in one line for people.
func (p *parser) account() {
	r := &p.w.Reading
	r.Rows = p.rows + r.Failed
	if p.opts.MaxInput+p.opts.MaxOutput+p.opts.MaxTotal > 0 {
		r.Policy = p.opts.Over
		if r.Policy == "" {
			r.Policy = OverRefuse
		}
	}
	how := "told from the file"
	if p.opts.Form != "" {
		how = "as named"
	}
	r.Verdict = fmt.Sprintf("form %s, %s", p.form, how)
	if !p.form.Timed() {
		r.Verdict += "; no times"
		return
	}
	switch {
	case p.unit == "":
		r.Verdict += "; clock times"
	case p.opts.Unit != "":
		r.Verdict += fmt.Sprintf("; times in %s, as named", p.unit)
	default:
		r.Verdict += fmt.Sprintf("; times in %s, as the form has them", p.unit)
	}
	first, span := p.first, time.Duration(p.last)
	r.Verdict += fmt.Sprintf("; last at %s", span)
	if d := p.last - first; d > 0 {
		r.Verdict += fmt.Sprintf(", %s requests/s", schemas.Rounded(float64(p.rows-1)/(float64(d)/1e9), 4))
	}
}

// length reads a whole number of tokens, at least 1.
func (p *parser) length(f field, what string) (int, error) {
	n, err := strconv.Atoi(f.text)
	if err != nil || f.text[0] == '+' {
		return 0, p.lines.fail(p.lines.n, f.col, "%s length %s is not a whole number; want 1 or more tokens", what, quoted(f.text))
	}
	return n, p.inRange(n, f.col, what)
}

func (p *parser) inRange(n, col int, what string) error {
	if n < 1 || n > maxTokens {
		return p.lines.fail(p.lines.n, col, "%s length %d is out of range; want 1 to %d tokens", what, n, maxTokens)
	}
	return nil
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
	switch unit {
	case "ms":
		scale = float64(time.Millisecond)
	case "us":
		scale = float64(time.Microsecond)
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
