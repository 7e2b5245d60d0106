package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"assay/schemas"
)

// jsonLine is a line of any of the JSONL forms. Other keys are not looked at.
type jsonLine struct {
	Timestamp    json.Number     `json:"timestamp"`
	InputLength  *int            `json:"input_length"`
	OutputLength *int            `json:"output_length"`
	HashIDs      []int64         `json:"hash_ids"`
	ChatID       json.RawMessage `json:"chat_id"`
	Prompt       *string         `json:"prompt"`
	Text         *string         `json:"text"`
	OutputTokens *int            `json:"output_tokens"`
	MaxTokens    *int            `json:"max_tokens"`
}

// jsonRows tells the form from the first line, which is read here, and settles it.
func (p *parser) jsonRows() (func(string) error, error) {
	line, err := p.lines.next()
	if errors.Is(err, io.EOF) {
		return nil, p.lines.fail(1, 0, "the file is empty; want a JSON object a line")
	}
	if err != nil {
		return nil, err
	}
	first, err := p.jsonLine(line)
	if err != nil {
		return nil, err
	}
	if p.opts.Form == "" {
		switch {
		case first.HashIDs != nil && first.ChatID != nil:
			p.form = FormBailian
		case first.HashIDs != nil:
			p.form = FormMooncake
		case first.Prompt != nil || first.Text != nil:
			p.form = FormPrompts
		case first.Timestamp != "" && first.InputLength != nil:
			p.form = FormTrace
		default:
			return nil, p.lines.fail(1, 0, "the keys are of no known form; want timestamp, input_length and output_length, with or without hash_ids, or prompt")
		}
	}
	if err := p.settle(); err != nil {
		return nil, err
	}
	if err := p.jsonRow(line); err != nil {
		return nil, err
	}
	return p.jsonRow, nil
}

func (p *parser) jsonLine(line string) (jsonLine, error) {
	var l jsonLine
	if err := json.Unmarshal([]byte(line), &l); err != nil {
		return l, p.lines.fail(p.lines.n, 0, "not a JSON object of this form: %v", schemas.PlainJSON(err))
	}
	return l, nil
}

func (p *parser) jsonRow(line string) error {
	l, err := p.jsonLine(line)
	if err != nil {
		return err
	}
	n := p.lines.n
	if p.form == FormPrompts {
		return p.promptRow(l)
	}
	if l.Timestamp == "" || l.InputLength == nil || l.OutputLength == nil {
		return p.lines.fail(n, 0, "timestamp, input_length or output_length is missing")
	}
	req := Request{InputTokens: *l.InputLength, OutputTokens: *l.OutputLength, Prompt: Prompt{Blocks: l.HashIDs, BlockTokens: p.form.blockTokens()}}
	at := field{text: l.Timestamp.String()}
	if req.AtNs, err = p.stamp(at); err != nil {
		return err
	}
	if req.InputTokens == 0 || req.OutputTokens == 0 {
		p.w.Reading.Failed++
		return nil
	}
	if err := p.inRange(req.InputTokens, 0, "input"); err != nil {
		return err
	}
	if err := p.inRange(req.OutputTokens, 0, "output"); err != nil {
		return err
	}
	if p.form == FormTrace {
		req.Prompt = Prompt{}
	}
	return p.add(req, at)
}

func (p *parser) promptRow(l jsonLine) error {
	text := l.Prompt
	if text == nil {
		text = l.Text
	}
	if text == nil {
		return p.lines.fail(p.lines.n, 0, "prompt is missing")
	}
	if *text == "" {
		p.w.Reading.Failed++
		return nil
	}
	req := Request{Prompt: Prompt{Text: *text}}
	for _, n := range []*int{l.OutputTokens, l.MaxTokens, l.OutputLength} {
		if n == nil {
			continue
		}
		if err := p.inRange(*n, 0, "output"); err != nil {
			return err
		}
		req.OutputTokens = *n
		break
	}
	return p.add(req, field{})
}

// conversation is an entry of a ShareGPT file.
type conversation struct {
	Conversations []said `json:"conversations"`
}

type said struct {
	From  string `json:"from"`
	Value string `json:"value"`
}

func (s said) person() bool { return s.Value != "" && (s.From == "human" || s.From == "user") }

func (s said) model() bool { return s.Value != "" && !s.person() && s.From != "system" }

// addTurns makes requests of a conversation that begins with a person's turn and an
// answer to it: of its first turn, or of the first opts.Turns that alternate. What
// was said before a turn is as the file has it.
func (p *parser) addTurns(c conversation) error {
	turns := c.Conversations
	if p.opts.Turns == 0 {
		return p.add(Request{Prompt: Prompt{Text: turns[0].Value}}, field{})
	}
	var history []Message
	name, model := strconv.Itoa(p.w.talks), ""
	p.w.talks++
	for k := 0; k < p.opts.Turns && 2*k+1 < len(turns) && turns[2*k].person() && turns[2*k+1].model(); k++ {
		req := Request{ID: name + "." + strconv.Itoa(k), Model: model, Conversation: name, Turn: k, Prompt: Prompt{Text: turns[2*k].Value, History: history[:len(history):len(history)]}}
		if err := p.add(req, field{}); err != nil {
			return err
		}
		model = p.w.Requests[len(p.w.Requests)-1].Model // one for the whole conversation
		history = append(history, Message{"user", turns[2*k].Value}, Message{"assistant", turns[2*k+1].Value})
	}
	return nil
}

// shareGPT reads an array of conversations one by one. The first turn is the
// prompt, as in other tools; an entry that does not begin with a person's turn and
// an answer to it is left out and counted.
func (p *parser) shareGPT() error {
	at := &lineReader{r: p.lines.r, line: 1}
	dec := json.NewDecoder(at)
	final := func(format string, args ...any) error {
		p.lines.n = at.lineOf(dec.InputOffset())
		return &SyntaxError{File: p.lines.file, Line: p.lines.n, Text: fmt.Sprintf(format, args...), Final: true}
	}
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return final("want a JSON array of conversations")
	}
	for dec.More() {
		var c conversation
		before := dec.InputOffset()
		if err := dec.Decode(&c); err != nil {
			p.lines.n = at.lineOf(dec.InputOffset())
			return final("entry %d: %v", p.rows+p.w.Reading.Failed, schemas.PlainJSON(err))
		}
		p.lines.n = at.lineOf(dec.InputOffset())
		if dec.InputOffset()-before > maxJSONBytes {
			return final("entry %d is longer than %d bytes", p.rows+p.w.Reading.Failed, maxJSONBytes)
		}
		turns := c.Conversations
		if len(turns) < 2 || turns[0].Value == "" || turns[1].Value == "" || (turns[0].From != "human" && turns[0].From != "user") {
			p.w.Reading.Failed++
			continue
		}
		if err := p.addTurns(c); err != nil {
			return final("%s", err.(*SyntaxError).Text) //nolint:errorlint,forcetypeassert // add returns nothing else
		}
	}
	if _, err := dec.Token(); err != nil {
		return final("the array does not end: %v", err)
	}
	return nil
}

// lineReader remembers where lines end, as far as the decoder has not been there.
type lineReader struct {
	r     io.Reader
	ends  []int64 // offsets of line ends after the last one asked for
	total int64
	line  int
	begun bool
}

func (l *lineReader) Read(b []byte) (int, error) {
	n, err := l.r.Read(b)
	got := b[:n]
	if !l.begun && n >= 3 && bytes.HasPrefix(got, []byte("\xef\xbb\xbf")) {
		copy(got, "   ") // white space to the decoder
	}
	l.begun = l.begun || n > 0
	for i, c := range got {
		if c == '\n' {
			l.ends = append(l.ends, l.total+int64(i))
		}
	}
	l.total += int64(n)
	return n, err
}

// lineOf is the line of an offset; offsets must not go back.
func (l *lineReader) lineOf(offset int64) int {
	k := 0
	for k < len(l.ends) && l.ends[k] < offset {
		k++
	}
	l.ends = append(l.ends[:0], l.ends[k:]...)
	l.line += k
	return l.line
}
