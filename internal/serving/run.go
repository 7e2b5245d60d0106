package serving

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"assay/internal/metrics"
	"assay/schemas"
)

// Row is what became of one request, without its token times.
type Row struct {
	Finished bool
	Why      Failure
	FirstMs  int64 // time of the first token
	LastMs   int64
	Tokens   int
	QoS      float64
}

// Result is one simulated point.
type Result struct {
	Rows []Row // by Request.Index
	// MeanQoS is over all requests, failures as 0; those whose QoS is undefined
	// are left out and counted.
	MeanQoS      float64
	QoSUndefined int
	Stats        Stats
	Cluster      Cluster
}

const nsPerMs = 1_000_000

// Simulate runs a workload to its end on the virtual clock. Each outcome is also
// handed to each, unless that is nil.
func Simulate(ctx context.Context, in Input, cfg Config, slo schemas.SLO, each func(Outcome) error) (Result, error) {
	s, err := New(cfg)
	if err != nil {
		return Result{}, err
	}
	res := Result{Rows: make([]Row, len(in.Requests))}
	judge := judge{slo: slo}
	sink := func(o Outcome) error {
		row, err := judge.row(o)
		if errors.Is(err, metrics.ErrQoSUndefined) {
			res.QoSUndefined++
		} else if err != nil {
			return fmt.Errorf("request %s: %w", in.IDs[o.Index], err)
		}
		res.Rows[o.Index] = row
		if each == nil {
			return nil
		}
		return each(o)
	}
	if res.Stats, err = s.Run(ctx, slices.Values(in.Requests), sink); err != nil {
		return res, err
	}
	res.Cluster = s.Cluster()
	values := make([]float64, len(res.Rows))
	for i, r := range res.Rows {
		values[i] = r.QoS
	}
	if n := len(values) - res.QoSUndefined; n > 0 {
		res.MeanQoS = metrics.Sum(values) / float64(n)
	}
	return res, nil
}

// judge makes rows. It keeps the room for times in nanoseconds.
type judge struct {
	slo schemas.SLO
	ns  []int64
}

func (j *judge) row(o Outcome) (Row, error) {
	row := Row{Finished: o.Finished, Why: o.Why, Tokens: len(o.TokensMs)}
	if !o.Finished {
		return row, nil
	}
	row.FirstMs, row.LastMs = o.TokensMs[0], o.EndMs
	j.ns = j.ns[:0]
	for _, t := range o.TokensMs {
		j.ns = append(j.ns, t*nsPerMs)
	}
	var err error
	row.QoS, err = metrics.QoS(o.AtMs*nsPerMs, j.ns, int64(j.slo.TTFTMs*nsPerMs+0.5), int64(j.slo.TPOTMs*nsPerMs+0.5))
	return row, err
}

// OutcomesHeader is the first line of what WriteRows writes.
const OutcomesHeader = "request_id,first_token_ms,last_token_ms,tokens"

// WriteRows writes one line for each request, in the order of the workload; the
// times of one that failed are empty.
func WriteRows(w io.Writer, in Input, rows []Row) error {
	b := bufio.NewWriterSize(w, 64<<10)
	b.WriteString(OutcomesHeader + "\n")
	var line []byte
	for _, r := range in.Requests {
		row := rows[r.Index]
		line = append(line[:0], in.IDs[r.Index]...)
		line = append(line, ',')
		if row.Finished {
			line = strconv.AppendInt(line, row.FirstMs, 10)
		}
		line = append(line, ',')
		if row.Finished {
			line = strconv.AppendInt(line, row.LastMs, 10)
		}
		line = append(line, ',')
		line = strconv.AppendInt(line, int64(row.Tokens), 10)
		b.Write(append(line, '\n'))
	}
	if err := b.Flush(); err != nil { // the first error of any of the writes
		return fmt.Errorf("write requests: %w", err)
	}
	return nil
}
