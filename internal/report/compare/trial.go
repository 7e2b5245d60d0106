package compare

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"assay/schemas"
)

// MaxRequests bounds the requests of a trial that can be held against another's.
const MaxRequests = 2_000_000

// maxLine bounds a line of a schedule.
const maxLine = 16 << 20

// Trial is one stage of one trial, with its result.
type Trial struct {
	Run        string // digest of its run; empty within one
	Node       string
	Stage      string
	ID         string // of the trial
	Repetition int
	Point      map[string]any
	// Params are the run's effective parameters, where runs are compared.
	Params map[string]any
	Result schemas.Result
	// Facts reads what a pair is checked by.
	Facts func(ctx context.Context) (*Facts, error)
}

// Facts are what a trial must have in common with its partner.
type Facts struct {
	Requests   []Request // by index
	Conditions []schemas.Condition
	// Engines are the ids of the engines that the service told of, sorted; nil where it
	// did not.
	Engines []string
}

// Request is what was asked and what came.
type Request struct {
	Index     int
	ID        string
	Model     string
	AtNs      int64
	Input     int
	Output    int
	Prompt    schemas.Digest // empty where no schedule tells
	Outcome   schemas.Outcome
	Generated int            // tokens, -1 for unknown
	Text      schemas.Digest // of the generated text, empty for unknown
}

// Requests reads a trial's records, and the schedule that tells of prompts and times
// where there is one.
func Requests(records iter.Seq2[schemas.RequestRecord, error], schedule io.Reader) ([]Request, error) {
	var out []Request
	names := map[string]string{} // one copy of each model's name
	for r, err := range records {
		if err != nil {
			return nil, err
		}
		if len(out) == MaxRequests {
			return nil, fmt.Errorf("more than %d requests: too many to compare one by one", MaxRequests)
		}
		model, ok := names[r.Model]
		if !ok {
			model = r.Model
			names[model] = model
		}
		q := Request{Index: r.Index, ID: r.ID, Model: model, AtNs: r.ScheduledNs, Input: r.AskedInputTokens, Output: r.AskedOutputTokens, Outcome: r.Outcome, Generated: -1, Text: r.TextDigest}
		if r.OutputTokens != nil {
			q.Generated = *r.OutputTokens
		}
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b Request) int { return cmp.Compare(a.Index, b.Index) })
	if schedule == nil {
		return out, nil
	}
	return out, addSchedule(out, schedule)
}

// addSchedule takes times and prompts from a schedule: its header, then a line for
// each request.
func addSchedule(list []Request, schedule io.Reader) error {
	at := map[int]int{}
	for i, q := range list {
		at[q.Index] = i
		list[i].AtNs = 0
	}
	told, n := 0, 0
	for line, err := range lines(schedule, maxLine) {
		n++
		if err != nil {
			return fmt.Errorf("schedule: line %d: %w", n, err)
		}
		if n == 1 {
			var h schemas.Schedule
			if err := json.Unmarshal(line, &h); err != nil || h.Schema != schemas.ScheduleV1 {
				return errors.New("schedule: its first line is no header")
			}
			continue
		}
		var r schemas.ScheduledRequest
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("schedule: line %d: %w", n, err)
		}
		if i, ok := at[r.Index]; ok {
			list[i].AtNs, list[i].Prompt = r.AtNs, r.PromptDigest
			delete(at, r.Index)
			told++
		}
	}
	if told != len(list) {
		return fmt.Errorf("schedule: it tells of %d of %d requests that have records", told, len(list))
	}
	return nil
}

// Engines reads the ids of engines from a runtime snapshot: a list of objects, or a
// table. nil where it tells of none.
func Engines(snapshot []byte) []string {
	var top map[string]json.RawMessage
	if json.Unmarshal(snapshot, &top) != nil {
		return nil
	}
	var list []map[string]any
	var table map[string]any
	var out []string
	switch {
	case json.Unmarshal(top["engines"], &list) == nil:
		for _, e := range list {
			id := ""
			for _, k := range []string{"node_id", "node", "type", "engine", "engine_id", "id", "name"} {
				if v, ok := e[k]; ok {
					id += fmt.Sprintf("/%s", schemas.PlainText(v))
				}
			}
			if id != "" {
				out = append(out, id[1:])
			}
		}
	case json.Unmarshal(top["engines"], &table) == nil:
		for k := range table {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
