package workload

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
)

// Form is the file form a workload came in.
type Form string

// The forms.
const (
	// FormAegaeonSynth is the published form of Aegaeon's artifact:
	// Request Time,Model Name,Input Length,Output Length.
	FormAegaeonSynth Form = "aegaeon-synth"
	// FormAegaeonRequests has no model column:
	// request_id,timestamp,input_tokens,output_tokens.
	FormAegaeonRequests Form = "aegaeon-requests"
	// FormAzure are the Azure LLM inference traces of 2023 and 2024:
	// TIMESTAMP,ContextTokens,GeneratedTokens with clock times.
	FormAzure Form = "azure"
	// FormBurstGPT is read by the names of its columns, which differ by version.
	FormBurstGPT Form = "burstgpt"
	// FormMooncake is JSONL of timestamp (ms), input_length, output_length and
	// hash_ids of blocks of 512 tokens.
	FormMooncake Form = "mooncake"
	// FormBailian is the same with chat_id, seconds and blocks of 16 tokens.
	FormBailian Form = "bailian"
	// FormTrace is JSONL of timestamp (s), input_length and output_length.
	FormTrace Form = "trace"
	// FormShareGPT is a JSON array of conversations; their first turns are prompts.
	FormShareGPT Form = "sharegpt"
	// FormPrompts is JSONL of prompt (or text) and, if stated, output_tokens.
	FormPrompts Form = "prompts"
	// FormText has one prompt a line. It is never told from a file, only named.
	FormText Form = "text"
)

// Timed reports whether the form says when requests arrive.
func (f Form) Timed() bool { return f != FormShareGPT && f != FormPrompts && f != FormText }

// NamesModels reports whether the form says which model a request is for.
func (f Form) NamesModels() bool { return f == FormAegaeonSynth || f == FormBurstGPT }

// ownUnit is the unit of the form's timestamps, "" for clock times.
func (f Form) ownUnit() string {
	switch f {
	case FormMooncake:
		return "ms"
	case FormAegaeonRequests, FormBurstGPT, FormBailian, FormTrace:
		return "s"
	}
	return ""
}

func (f Form) blockTokens() int {
	switch f {
	case FormMooncake:
		return 512
	case FormBailian:
		return 16
	}
	return 0
}

const (
	synthHeader     = "Request Time,Model Name,Input Length,Output Length"
	requestsHeader  = "request_id,timestamp,input_tokens,output_tokens"
	azureHeader     = "TIMESTAMP,ContextTokens,GeneratedTokens"
	twoColumnHeader = "Request Time,Model Name"
)

var tables = []Form{FormAegaeonSynth, FormAegaeonRequests, FormAzure, FormBurstGPT}

// start settles the form, as far as the first byte tells it.
func (p *parser) start() error {
	p.form = p.opts.Form
	if p.form != "" {
		if !slices.Contains([]Form{FormMooncake, FormBailian, FormTrace, FormShareGPT, FormPrompts, FormText}, p.form) && !slices.Contains(tables, p.form) {
			return p.lines.fail(1, 0, "unknown form %s", quoted(string(p.form)))
		}
		return nil
	}
	head, _ := p.lines.r.Peek(512)
	switch head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n"); {
	case bytes.HasPrefix(head, []byte("[")):
		p.form = FormShareGPT
	case bytes.HasPrefix(head, []byte("{")):
		p.form = FormTrace // which of the JSONL forms, the first line tells
	}
	return nil
}

// rowReader gives what reads a line of the form; nil for one that is not made of
// lines.
func (p *parser) rowReader() (func(string) error, error) {
	var row func(string) error
	var err error
	switch p.form {
	case FormShareGPT:
		return nil, p.settle()
	case FormText:
		p.lines.max = maxJSONBytes
		row = p.textRow
	case FormMooncake, FormBailian, FormTrace, FormPrompts:
		p.lines.max = maxJSONBytes
		return p.jsonRows()
	default:
		row, err = p.tableRows()
	}
	if err != nil {
		return nil, err
	}
	return row, p.settle()
}

// settle checks the options against the form, once it is known.
func (p *parser) settle() error {
	p.w.Form, p.w.BlockTokens = p.form, p.form.blockTokens()
	if p.unit = p.form.ownUnit(); p.unit != "" && p.opts.Unit != "" {
		p.unit = p.opts.Unit
	}
	if p.unit != "" && !slices.Contains([]string{"s", "ms", "us"}, p.unit) {
		return p.lines.fail(1, 0, "unit of the timestamps %s: want \"s\", \"ms\" or \"us\"", quoted(p.unit))
	}
	if p.form.NamesModels() {
		return nil
	}
	if len(p.opts.Models) == 0 {
		return p.lines.fail(1, 0, "this form names no models; give the models to assign its requests to")
	}
	p.rng = NewRand(p.opts.Seed, PurposeAssign)
	return nil
}

// tableRows reads the header of a CSV file.
func (p *parser) tableRows() (func(string) error, error) {
	h, err := p.lines.next()
	if errors.Is(err, io.EOF) {
		return nil, p.lines.fail(1, 0, "the file is empty; want the header %q or %q, or another form of the list", synthHeader, requestsHeader)
	}
	if err != nil {
		return nil, err
	}
	form, row := Form(""), (func(string) error)(nil)
	names := strings.Split(h, ",")
	switch {
	case h == synthHeader:
		form, row = FormAegaeonSynth, p.synthRow
	case h == requestsHeader:
		form, row = FormAegaeonRequests, p.requestsRow
	case h == azureHeader:
		form, row = FormAzure, p.azureRow()
	case h == twoColumnHeader:
		return nil, p.lines.fail(1, 0, "the two-column form has no lengths; use a file with the header %q", synthHeader)
	case slices.Contains(names, "Request tokens") && slices.Contains(names, "Response tokens"):
		form = FormBurstGPT
		if row, err = p.burstRow(names); err != nil {
			return nil, err
		}
	default:
		return nil, p.lines.fail(1, 0, "unknown header %s; want exactly %q, %q, %q, BurstGPT's, or JSON", quoted(h), synthHeader, requestsHeader, azureHeader)
	}
	if p.form != "" && p.form != form {
		return nil, p.lines.fail(1, 0, "the header is that of form %q, not of %q", form, p.form)
	}
	p.form = form
	return row, nil
}
