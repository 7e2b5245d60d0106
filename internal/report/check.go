package report

import (
	"fmt"
	"slices"

	"assay/schemas"
)

// Limits that no true record passes; they keep a made-up one from costing memory.
const (
	maxRecordTokens = 10_000_000
	maxStampNs      = int64(1) << 60
)

// checkRecord refuses a record that contradicts itself.
func checkRecord(r *schemas.RequestRecord) error {
	switch {
	case r.Schema != schemas.RequestRecordV1:
		return fmt.Errorf("schema %q, want %q", r.Schema, schemas.RequestRecordV1)
	case r.Index < 0:
		return fmt.Errorf("index %d is negative", r.Index)
	case !slices.Contains(schemas.Outcomes, r.Outcome):
		return fmt.Errorf("unknown outcome %q", r.Outcome)
	case r.AskedInputTokens < 0 || r.AskedOutputTokens < 0 || r.AskedInputTokens > maxRecordTokens || r.AskedOutputTokens > maxRecordTokens:
		return fmt.Errorf("asked lengths %d and %d are out of range", r.AskedInputTokens, r.AskedOutputTokens)
	}
	for _, n := range []*int{r.InputTokens, r.OutputTokens} {
		if n != nil && (*n < 0 || *n > maxRecordTokens) {
			return fmt.Errorf("token count %d is out of range", *n)
		}
	}
	return checkStamps(r)
}

func checkStamps(r *schemas.RequestRecord) error {
	named := []struct {
		name string
		at   *int64
	}{
		{"scheduled_ns", &r.ScheduledNs}, {"dispatched_ns", r.DispatchedNs}, {"first_token_ns", r.FirstTokenNs},
		{"first_visible_ns", r.FirstVisibleNs}, {"last_token_ns", r.LastTokenNs}, {"done_ns", r.DoneNs}, {"end_ns", &r.EndNs},
	}
	for _, s := range named {
		if s.at != nil && (*s.at > maxStampNs || *s.at < -maxStampNs) {
			return fmt.Errorf("%s = %d is out of range", s.name, *s.at)
		}
	}
	if r.DispatchedNs == nil && (len(r.Chunks) > 0 || r.FirstTokenNs != nil || r.DoneNs != nil) {
		return fmt.Errorf("it has output but no dispatched_ns")
	}
	ordered := []*int64{r.DispatchedNs, r.FirstTokenNs, r.LastTokenNs, r.DoneNs, &r.EndNs}
	var before *int64
	for _, at := range ordered {
		if at == nil {
			continue
		}
		if before != nil && *at < *before {
			return fmt.Errorf("its stamps are out of order: %d ns after %d ns", *at, *before)
		}
		before = at
	}
	return checkChunks(r)
}

func checkChunks(r *schemas.RequestRecord) error {
	if len(r.Chunks) == 0 {
		if r.FirstTokenNs != nil || r.LastTokenNs != nil {
			return fmt.Errorf("it has token stamps but no chunk")
		}
		return nil
	}
	first, last := r.Chunks[0].AtNs, r.Chunks[len(r.Chunks)-1].AtNs
	if r.FirstTokenNs == nil || r.LastTokenNs == nil || *r.FirstTokenNs != first || *r.LastTokenNs != last {
		return fmt.Errorf("first_token_ns and last_token_ns are not those of its first and last chunk")
	}
	for i, c := range r.Chunks {
		if i > 0 && c.AtNs < r.Chunks[i-1].AtNs {
			return fmt.Errorf("chunk %d is before the one above it", i)
		}
		if c.Bytes < 0 || (c.Tokens != nil && (*c.Tokens < 0 || *c.Tokens > maxRecordTokens)) {
			return fmt.Errorf("chunk %d has a negative or impossible count", i)
		}
	}
	return nil
}
