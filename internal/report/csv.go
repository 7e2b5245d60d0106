package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"strconv"

	"assay/internal/metrics"
	"assay/schemas"
)

var csvColumns = []string{
	"stage", "trial", "index", "id", "model", "outcome", "phase", "switch_from", "asked_input_tokens", "asked_output_tokens", "input_tokens", "output_tokens",
	"scheduled_ns", "queued_ns", "dispatched_ns", "first_token_ns", "last_token_ns", "done_ns", "end_ns",
	"ttft_ms", "ttft_from_schedule_ms", "tpot_ms", "e2e_ms", "e2e_from_schedule_ms", "max_gap_ms", "send_lag_ms", "queue_ms", "stamp_source", "error",
}

// CSVWriter writes one row a request, after a header. An empty cell is a number
// that does not exist: a failure is never a zero.
type CSVWriter struct {
	w *csv.Writer
}

// NewCSVWriter writes the header.
func NewCSVWriter(out io.Writer) (*CSVWriter, error) {
	w := &CSVWriter{csv.NewWriter(out)}
	if err := w.w.Write(csvColumns); err != nil {
		return nil, fmt.Errorf("write csv: %w", err)
	}
	return w, nil
}

// Write writes the records of one stage and trial, and flushes.
func (c *CSVWriter) Write(stage, trial string, records iter.Seq2[schemas.RequestRecord, error]) error {
	for r, err := range records {
		if err != nil {
			return fmt.Errorf("write csv: %w", err)
		}
		row := []string{stage, trial, strconv.Itoa(r.Index), r.ID, r.Model, string(r.Outcome), r.Phase, r.SwitchFrom,
			strconv.Itoa(r.AskedInputTokens), strconv.Itoa(r.AskedOutputTokens), cell(r.InputTokens), cell(r.OutputTokens),
			strconv.FormatInt(r.ScheduledNs, 10), cell(r.QueuedNs), cell(r.DispatchedNs), cell(r.FirstTokenNs), cell(r.LastTokenNs), cell(r.DoneNs), strconv.FormatInt(r.EndNs, 10)}
		for _, of := range []func(*schemas.RequestRecord) (float64, bool){metrics.TTFTMs, metrics.TTFTFromScheduleMs, metrics.TPOTMs, metrics.E2EMs,
			metrics.E2EFromScheduleMs, metrics.MaxGapMs, metrics.SendLagMs, metrics.QueueMs} {
			text := ""
			if v, ok := of(&r); ok {
				text = strconv.FormatFloat(v, 'g', -1, 64)
			}
			row = append(row, text)
		}
		if err := c.w.Write(append(row, r.StampSource, r.Error)); err != nil {
			return fmt.Errorf("write csv: %w", err)
		}
	}
	c.w.Flush()
	if err := c.w.Error(); err != nil {
		return fmt.Errorf("write csv: %w", err)
	}
	return nil
}

func cell[T int | int64](v *T) string {
	if v == nil {
		return ""
	}
	return strconv.FormatInt(int64(*v), 10)
}
