package simulate

import (
	"bufio"
	"errors"
	"strconv"

	"assay/internal/durable"
	"assay/internal/serving"
	"assay/pipeline"
	"assay/schemas"
)

// errStopped ends a simulation whose records nobody wants any more; the fold has
// an error of its own then.
var errStopped = errors.New("the fold stopped")

const nsPerMs = 1_000_000

// one is the number of tokens in every simulated event.
var one = 1

// record gives a simulated request the form of a measured one, so that the same
// code folds both. Nothing was sent and nothing stamped it.
func record(in serving.Input, o serving.Outcome) schemas.RequestRecord {
	at, end, input := o.AtMs*nsPerMs, o.EndMs*nsPerMs, o.InputTokens
	r := schemas.RequestRecord{
		Schema: schemas.RequestRecordV1, ID: in.IDs[o.Index], Index: o.Index, Model: in.Models[o.Model].Name, API: "completions",
		AskedInputTokens: o.InputTokens, AskedOutputTokens: o.OutputTokens, Held: true,
		ScheduledNs: at, DispatchedNs: &at, EndNs: end, InputTokens: &input, InputTokensSource: "asked",
	}
	if !o.Finished {
		r.Outcome, r.Error = schemas.OutcomeTimeout, "no token within the patience of the system"
		switch o.Why {
		case serving.FailedCapacity:
			r.Outcome, r.Error = schemas.OutcomeEngineError, "its KV does not fit into the device"
		case serving.FailedReplica:
			r.Outcome, r.Error = schemas.OutcomeEngineError, "no node has its model ready"
		}
		return r
	}
	n, first := len(o.TokensMs), o.TokensMs[0]*nsPerMs
	r.Outcome, r.FinishReason = schemas.OutcomeOK, "length"
	r.OutputTokens, r.OutputTokensSource = &n, "chunks"
	r.FirstTokenNs, r.LastTokenNs, r.FinishNs, r.DoneNs = &first, &end, &end, &end
	r.Chunks = make([]schemas.Chunk, n)
	for i, t := range o.TokensMs {
		r.Chunks[i] = schemas.Chunk{AtNs: t * nsPerMs, Tokens: &one}
	}
	return r
}

// tokenWriter writes the times of every token, a line for each request in order of
// their ends: the first absolute, then the gaps, GAPxTIMES where one repeats.
type tokenWriter struct {
	file *durable.File
	buf  *bufio.Writer
	line []byte
}

const tokensHeader = "request_id,first_token_ms,gaps_ms\n"

func newTokenWriter(path, header string) (*tokenWriter, error) {
	f, err := durable.Create(path)
	if err != nil {
		return nil, &pipeline.InfraError{Op: "write token times", Err: err}
	}
	w := &tokenWriter{file: f, buf: bufio.NewWriterSize(f, 64<<10), line: []byte(header)}
	return w, w.flushLine()
}

// write adds a request; a nil writer takes none.
func (w *tokenWriter) write(id string, o serving.Outcome) error {
	if w == nil {
		return nil
	}
	w.line = appendTokens(w.line[:0], id, o)
	return w.flushLine()
}

// appendTokens appends the line of a request.
func appendTokens(line []byte, id string, o serving.Outcome) []byte {
	line = append(append(line, id...), ',')
	if len(o.TokensMs) > 0 {
		line = strconv.AppendInt(line, o.TokensMs[0], 10)
	}
	line = append(line, ',')
	for i := 1; i < len(o.TokensMs); {
		gap, n := o.TokensMs[i]-o.TokensMs[i-1], 1
		for i+n < len(o.TokensMs) && o.TokensMs[i+n]-o.TokensMs[i+n-1] == gap {
			n++
		}
		if i > 1 {
			line = append(line, ' ')
		}
		line = strconv.AppendInt(line, gap, 10)
		if n > 1 {
			line = strconv.AppendInt(append(line, 'x'), int64(n), 10)
		}
		i += n
	}
	return append(line, '\n')
}

func (w *tokenWriter) flushLine() error {
	if _, err := w.buf.Write(w.line); err != nil {
		return &pipeline.InfraError{Op: "write token times", Err: err}
	}
	return nil
}

func (w *tokenWriter) close() error {
	err := w.buf.Flush()
	if err == nil {
		err = w.file.Commit()
	}
	if err != nil {
		return &pipeline.InfraError{Op: "write token times", Err: err}
	}
	return nil
}
