package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"assay/internal/report"
	"assay/schemas"
)

// Bounds of documents that are read whole.
const (
	maxConditions = 16 << 20
	maxSnapshot   = 64 << 20
	maxResult     = 64 << 20
)

// Open opens a file of an output of a stage; the error wraps fs.ErrNotExist where
// there is none.
type Open func(output, file string) (io.ReadCloser, error)

// RequestsCondition is the condition by which a simulation tells of its requests.
const RequestsCondition = "requests_digest"

// ReadResult reads a stage's result.
func ReadResult(open Open) (schemas.Result, error) {
	var res schemas.Result
	b, err := readWhole(open, "result", "result.json", maxResult)
	if err != nil {
		return res, err
	}
	if err := schemas.Validate("result", b); err != nil {
		return res, err
	}
	return res, json.Unmarshal(b, &res)
}

// ReadFacts reads what a pair is checked by, from what a stage of kind measure or
// simulate published.
func ReadFacts(simulated bool, open Open) (*Facts, error) {
	var f Facts
	b, err := readWhole(open, "result", "conditions.json", maxConditions)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &f.Conditions); err != nil {
		return nil, fmt.Errorf("conditions: %w", err)
	}
	if simulated {
		if f.condition(RequestsCondition) == nil {
			return nil, errors.New("its conditions do not tell which requests were simulated: simulate again")
		}
		f.Requests, err = simulatedRequests(open)
		return &f, err
	}
	if f.Requests, err = measuredRequests(open); err != nil {
		return nil, err
	}
	b, err = readWhole(open, "observed", "snapshot-after.json", maxSnapshot)
	switch {
	case err == nil:
		f.Engines = Engines(b)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return &f, nil
}

func (f *Facts) condition(name string) *schemas.Condition {
	for i := range f.Conditions {
		if f.Conditions[i].Name == name {
			return &f.Conditions[i]
		}
	}
	return nil
}

func readWhole(open Open, output, file string, limit int64) ([]byte, error) {
	r, err := open(output, file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s is over the limit of %d bytes", file, limit)
	}
	return b, nil
}

func measuredRequests(open Open) ([]Request, error) {
	records, err := open("requests", "requests.jsonl.zst")
	if err != nil {
		return nil, err
	}
	defer records.Close()
	rd, err := report.NewRecordReader(records, "requests.jsonl.zst")
	if err != nil {
		return nil, err
	}
	defer rd.Close()
	schedule, err := open("schedule", "schedule.jsonl")
	if err != nil {
		return nil, err
	}
	defer schedule.Close()
	return Requests(rd.All(), schedule)
}

// simulatedRequests reads the rows of a simulation: what was asked is told by a
// condition, what came by these.
func simulatedRequests(open Open) ([]Request, error) {
	r, err := open("requests", "requests.csv")
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return simulatedRows(r)
}

func simulatedRows(r io.Reader) ([]Request, error) {
	const header = "request_id,first_token_ms,last_token_ms,tokens"
	var out []Request
	n := 0
	for line, err := range lines(r, 1<<20) {
		n++
		if err != nil {
			return nil, fmt.Errorf("requests.csv: line %d: %w", n, err)
		}
		if n == 1 {
			if string(line) != header {
				return nil, fmt.Errorf("requests.csv: its first line is not %s", header)
			}
			continue
		}
		if len(out) == MaxRequests {
			return nil, fmt.Errorf("more than %d requests: too many to compare one by one", MaxRequests)
		}
		// An id may hold commas; the three numbers do not.
		cells := strings.Split(string(line), ",")
		if len(cells) < 4 {
			return nil, fmt.Errorf("requests.csv: line %d has %d cells, want 4", n, len(cells))
		}
		k := len(cells) - 3
		tokens, err := strconv.Atoi(cells[k+2])
		if err != nil {
			return nil, fmt.Errorf("requests.csv: line %d: tokens: %w", n, err)
		}
		q := Request{Index: len(out), ID: strings.Join(cells[:k], ","), Outcome: schemas.OutcomeOK, Generated: tokens}
		if cells[k] == "" {
			q.Outcome = schemas.OutcomeTimeout
		}
		out = append(out, q)
	}
	return out, nil
}
