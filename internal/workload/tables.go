package workload

import (
	"encoding/csv"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is one cell and the column it starts in.
type field struct {
	text string
	col  int
}

// cells splits a row into want cells.
func (p *parser) cells(line string, want int) ([]field, error) {
	n := p.lines.n
	parts := strings.Split(line, ",")
	if strings.Contains(line, `"`) {
		rec, err := csv.NewReader(strings.NewReader(line)).Read()
		if err != nil {
			return nil, p.lines.fail(n, 0, "bad quoting; write plain values separated by commas")
		}
		parts = rec
	}
	if len(parts) != want {
		return nil, p.lines.fail(n, 0, "%d columns; want %d as in the header", len(parts), want)
	}
	out, col := make([]field, want), 1
	for i, s := range parts {
		out[i] = field{text: s, col: col}
		col += len(s) + 1
	}
	return out, nil
}

// lengths reads both lengths into a request.
func (p *parser) lengths(req *Request, in, out field) error {
	var err error
	if req.InputTokens, err = p.length(in, "input"); err != nil {
		return err
	}
	req.OutputTokens, err = p.length(out, "output")
	return err
}

func (p *parser) synthRow(line string) error {
	f, err := p.cells(line, 4)
	if err != nil {
		return err
	}
	at, err := parseClock(f[0].text)
	if err != nil {
		return p.lines.fail(p.lines.n, f[0].col, "time %s: %v; want HH:MM:SS.mmm", quoted(f[0].text), err)
	}
	if err := checkName(f[1].text); err != nil {
		return p.lines.fail(p.lines.n, f[1].col, "model name %s %v", quoted(f[1].text), err)
	}
	req := Request{AtNs: at, Model: f[1].text}
	if err := p.lengths(&req, f[2], f[3]); err != nil {
		return err
	}
	return p.add(req, f[0])
}

func (p *parser) requestsRow(line string) error {
	f, err := p.cells(line, 4)
	if err != nil {
		return err
	}
	id := f[0].text
	if err := checkName(id); err != nil {
		return p.lines.fail(p.lines.n, f[0].col, "request_id %s %v", quoted(id), err)
	}
	if line, dup := p.ids[id]; dup {
		return p.lines.fail(p.lines.n, f[0].col, "request_id %s is already on line %d; ids must be unique", quoted(id), line)
	}
	p.ids[id] = p.lines.n
	req := Request{ID: id}
	if req.AtNs, err = p.stamp(f[1]); err != nil {
		return err
	}
	if err := p.lengths(&req, f[2], f[3]); err != nil {
		return err
	}
	return p.add(req, f[1])
}

func (p *parser) stamp(f field) (int64, error) {
	at, err := parseStamp(f.text, p.unit)
	if err != nil {
		return 0, p.lines.fail(p.lines.n, f.col, "timestamp %s: %v", quoted(f.text), err)
	}
	return at, nil
}

// azureRow reads rows with clock times; the first is the workload's zero. The
// trace of 2023 has seven decimals and no zone, that of 2024 any number of
// decimals and a zone.
func (p *parser) azureRow() func(string) error {
	var zero time.Time
	return func(line string) error {
		f, err := p.cells(line, 3)
		if err != nil {
			return err
		}
		at, err := clockTime(f[0].text)
		if err != nil {
			return p.lines.fail(p.lines.n, f[0].col, "time %s: %v", quoted(f[0].text), err)
		}
		if zero.IsZero() {
			zero = at
		}
		since := at.Sub(zero)
		if since > maxOffset {
			return p.lines.fail(p.lines.n, f[0].col, "time %s is more than %s after the first row", quoted(f[0].text), maxOffset)
		}
		if since < 0 {
			return p.lines.fail(p.lines.n, f[0].col, "time %s is before the first row; sort the file by time", quoted(f[0].text))
		}
		if f[1].text == "0" || f[2].text == "0" {
			p.w.Reading.Failed++ // recorded without a prompt or without an answer
			return nil
		}
		req := Request{AtNs: int64(since)}
		if err := p.lengths(&req, f[1], f[2]); err != nil {
			return err
		}
		return p.add(req, f[0])
	}
}

func clockTime(s string) (time.Time, error) {
	if len(s) < 19 || len(s) > 40 || (s[10] != ' ' && s[10] != 'T') {
		return time.Time{}, errors.New("want a time like 2023-11-16 18:15:46.6805900")
	}
	s = s[:10] + " " + s[11:]
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"} {
		if t, err := time.Parse(layout, s); err == nil && t.Year() > 0 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, errors.New("want a time like 2023-11-16 18:15:46.6805900, with or without a zone")
}

// burstRow reads BurstGPT by the names of its columns: its versions have other
// ones. Requests without response tokens failed when they were recorded.
func (p *parser) burstRow(names []string) (func(string) error, error) {
	var at [4]int
	for i, name := range []string{"Timestamp", "Model", "Request tokens", "Response tokens"} {
		if at[i] = slices.Index(names, name); at[i] < 0 {
			return nil, p.lines.fail(1, 0, "the header has no column %q, which BurstGPT needs", name)
		}
	}
	return func(line string) error {
		f, err := p.cells(line, len(names))
		if err != nil {
			return err
		}
		model := f[at[1]]
		if err := checkName(model.text); err != nil {
			return p.lines.fail(p.lines.n, model.col, "model name %s %v", quoted(model.text), err)
		}
		req := Request{Model: model.text}
		if req.AtNs, err = p.stamp(f[at[0]]); err != nil {
			return err
		}
		if in, out := f[at[2]].text, f[at[3]].text; in == "0" || out == "0" {
			p.w.Reading.Failed++
			return nil
		}
		if err := p.lengths(&req, f[at[2]], f[at[3]]); err != nil {
			return err
		}
		return p.add(req, f[at[0]])
	}, nil
}

// textRow takes a line as a prompt.
func (p *parser) textRow(line string) error {
	if strings.TrimSpace(line) == "" {
		return nil
	}
	return p.add(Request{ID: strconv.Itoa(p.rows), Prompt: Prompt{Text: line}}, field{})
}
