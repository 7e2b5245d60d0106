package measure

import (
	"errors"
	"fmt"
	"math"

	"assay/internal/loadgen"
	"assay/internal/workload"
	"assay/schemas"
)

// talks groups the requests of a file into conversations; one that belongs to none
// stands alone.
func talks(list []workload.Request) [][]workload.Request {
	var out [][]workload.Request
	for _, r := range list {
		if n := len(out); n > 0 && r.Conversation != "" && out[n-1][0].Conversation == r.Conversation {
			out[n-1] = append(out[n-1], r)
			continue
		}
		out = append(out, []workload.Request{r})
	}
	return out
}

// checkTurns refuses turns where there are no conversations, or no way to send one.
func checkTurns(set schemas.Settings, form workload.Form) error {
	switch {
	case !set.Has("turns"):
		return nil
	case form != workload.FormShareGPT:
		return fmt.Errorf("turns: %s is of form %s, which holds no conversations", baseName(set.Text("prompts")), form)
	case set.Text("api") != loadgen.APIChat:
		return errors.New("turns: a conversation is sent to the chat endpoint: say api = \"chat\"")
	}
	return nil
}

// thinking gives what draws the times between an answer and the turn after it, in
// ns; they are 0 without the key.
func (p *plan) thinking(set schemas.Settings) func() int64 {
	t := set.Table("think")
	mean := float64(t.Duration("time"))
	if t == nil || mean == 0 {
		return func() int64 { return 0 }
	}
	if t.Text("dist") != "exponential" {
		return func() int64 { return int64(mean) }
	}
	r := workload.NewRand(p.header.Seeds.Arrival, "arrival/think")
	return func() int64 { return int64(math.Round(r.ExpFloat64() * mean)) }
}

// turns counts conversations and their turns, for the conditions; nil for none.
func (p *plan) turns() any {
	count, most := map[string]int{}, 0
	for _, r := range p.requests {
		if r.Conversation != "" {
			count[r.Conversation]++
			most = max(most, r.Turn+1)
		}
	}
	if len(count) == 0 {
		return nil
	}
	return map[string]any{"conversations": len(count), "turns": len(p.requests), "most_turns": most,
		"history": "as the file has it: the answers of the service are not sent back"}
}
