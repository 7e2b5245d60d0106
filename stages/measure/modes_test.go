package measure

import (
	"context"
	"os"
	"strings"
	"testing"

	"assay/schemas"
)

// generated is a stage without a workload file; content, when there is any,
// becomes its file of prompts.
func generated(t *testing.T, e *engine, content string, config map[string]any) *stage {
	t.Helper()
	s := newStage(t, e, content, config)
	if content != "" {
		s.task.Config["prompts"] = s.task.Config["workload"]
	}
	delete(s.task.Config, "workload")
	return s
}

func fixed(n float64) map[string]any { return map[string]any{"dist": "fixed", "tokens": n} }

func TestGeneratedArrivals(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	config := func() map[string]any {
		return map[string]any{"arrival": map[string]any{"process": "gamma", "rate": 500.0, "shape": 0.5}, "requests": 40.0, "max_in_flight": 2.0,
			"input": map[string]any{"dist": "uniform", "min": 4.0, "max": 9.0}, "output": map[string]any{"dist": "lognormal", "mean": 4.0, "max": 8.0}}
	}
	var digests []schemas.Digest
	for _, seeds := range []map[string]any{nil, nil, {"arrival": 5.0}, {"content": 5.0}} {
		c := config()
		if seeds != nil {
			c["seeds"] = seeds
		}
		s := generated(t, e, "", c)
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		h, list := s.schedule(t)
		if h.Arrival != "gamma" || h.Process.Shape != 0.5 || h.Mode != schemas.ModeOpen || len(list) != 40 || h.MaxInFlight != 2 || h.Output.Sigma != 1 {
			t.Errorf("header %+v", h)
		}
		digests = append(digests, h.RequestsDigest)
		for _, r := range s.records(t) {
			if r.QueuedNs == nil || *r.QueuedNs < r.ScheduledNs {
				t.Errorf("request %s does not say how long it waited: %+v", r.ID, r)
			}
		}
		if b, _ := os.ReadFile(s.path(OutputResult, ConditionsFile)); !strings.Contains(string(b), string(h.RequestsDigest)) {
			t.Error("the conditions do not name the schedule")
		}
	}
	if digests[0] != digests[1] || digests[0] == digests[2] || digests[0] == digests[3] || digests[2] == digests[3] {
		t.Errorf("schedules must follow from their seeds, and from each of them: %v", digests)
	}
}

func TestClosedSequentialAndSwitch(t *testing.T) {
	e := startEngine(t, fast("m0", "m1", "m2"), func() {})
	s := generated(t, e, "", map[string]any{"concurrency": 3.0, "requests": 12.0, "input": fixed(5), "output": fixed(3)})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	h, _ := s.schedule(t)
	if res := s.result(t); res.Headline != "ttft_ms" || res.Counts.OK != 12 || h.Mode != schemas.ModeClosed || h.Concurrency != 3 {
		t.Errorf("%+v %+v", res.Counts, h)
	}
	s = newStage(t, e, synthForm, map[string]any{"mode": "sequential"})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	recs := s.records(t)
	for _, pair := range [][2]string{{"0", "1"}, {"1", "2"}, {"2", "3"}} {
		if a, b := recs[pair[0]], recs[pair[1]]; b.ScheduledNs < *a.DoneNs {
			t.Errorf("request %s began before %s ended", b.ID, a.ID)
		}
	}
	s = generated(t, e, "", map[string]any{"mode": "switch", "input": fixed(5), "output": fixed(3)})
	s.task.Experiment.Stage = nil // no warm-up
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	pairs, cold := map[string]int{}, 0
	for _, r := range s.records(t) {
		if r.Phase == schemas.PhaseCold {
			cold++
		}
		if r.SwitchFrom != "" {
			pairs[r.SwitchFrom+">"+r.Model]++
		}
	}
	if len(pairs) != 6 || cold != 3 {
		t.Errorf("pairs %v, %d cold", pairs, cold)
	}
}

func TestPromptsAndSharedBlocks(t *testing.T) {
	e := startEngine(t, fast("m0"), func() {})
	lines := "one\ntwo\nthree\nfour\n"
	for _, api := range []string{"completions", "chat"} {
		s := generated(t, e, lines, map[string]any{"workload_form": "text", "concurrency": 2.0, "output": fixed(3), "shuffle": true, "api": api})
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		h, list := s.schedule(t)
		if h.WorkloadForm != "text" || h.Reading.Kept != 4 || len(list) != 4 || list[0].PromptDigest == schemas.DigestOf([]byte("one")) && list[1].PromptDigest == schemas.DigestOf([]byte("two")) {
			t.Errorf("%+v %+v", h, list)
		}
		if res := s.result(t); res.Counts.OK != 4 {
			t.Errorf("%s: %+v", api, res.Counts)
		}
	}
	s := newStage(t, e, `{"timestamp": 0, "input_length": 1024, "output_length": 2, "hash_ids": [4, 5]}`+"\n"+
		`{"timestamp": 3, "input_length": 1024, "output_length": 2, "hash_ids": [4, 5]}`+"\n", map[string]any{})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	h, list := s.schedule(t)
	if h.WorkloadForm != "mooncake" || list[1].AtNs != 3e6 || list[0].PromptDigest != list[1].PromptDigest || !strings.Contains(s.log.String(), "form mooncake, told from the file; times in ms") {
		t.Errorf("%+v %+v, log %s", h, list, s.log.String())
	}
}

func TestRefusesWhatIsNoPlan(t *testing.T) {
	e := startEngine(t, fast("m0"), func() {})
	for want, config := range map[string]map[string]any{
		"two models or more":  {"mode": "switch", "input": fixed(5), "output": fixed(3)},
		"5 requests but":      {"concurrency": 1.0, "requests": 5.0, "output": fixed(3), "prompts": true},
		"states no output":    {"concurrency": 1.0, "prompts": true},
		"nothing says when":   {},
		"belongs to process":  {"arrival": map[string]any{"process": "poisson", "rate": 1.0, "shape": 2.0}, "requests": 2.0, "input": fixed(5), "output": fixed(3)},
		"speed 2 has no":      {"concurrency": 1.0, "requests": 5.0, "input": fixed(5), "output": fixed(3), "speed": 2.0},
		"needs tokens":        {"concurrency": 1.0, "requests": 5.0, "input": map[string]any{}, "output": fixed(3)},
		"give it as workload": {"concurrency": 1.0, "prompts": "trace", "output": fixed(3)},
	} {
		content := ""
		switch config["prompts"] {
		case true:
			content = "one\ntwo\n"
			config["workload_form"] = "text"
		case "trace":
			content = synthForm
		}
		delete(config, "prompts")
		err := run(context.Background(), generated(t, e, content, config).task)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", config, err, want)
		}
	}
}

const talksFile = `[{"conversations": [{"from": "human", "value": "q0"}, {"from": "gpt", "value": "a0"}, {"from": "human", "value": "q1"}, {"from": "gpt", "value": "a1"}]},
{"conversations": [{"from": "human", "value": "r0"}, {"from": "gpt", "value": "b0"}, {"from": "human", "value": "r1"}, {"from": "gpt", "value": "b1"}]},
{"conversations": [{"from": "human", "value": "s0"}, {"from": "gpt", "value": "c0"}]}]`

func TestConversations(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	config := func() map[string]any {
		return map[string]any{"concurrency": 2.0, "turns": 5.0, "api": "chat", "output": fixed(3), "think": map[string]any{"time": "20ms", "dist": "exponential"}}
	}
	var digests []schemas.Digest
	for _, seed := range []float64{1, 1, 2} {
		c := config()
		c["seeds"] = map[string]any{"arrival": seed, "content": 1.0, "assignment": 1.0}
		s := generated(t, e, talksFile, c)
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		h, list := s.schedule(t)
		digests = append(digests, h.RequestsDigest)
		recs := s.records(t)
		if res := s.result(t); res.Counts.OK != 5 || len(list) != 5 || list[1].Turn != 1 || list[1].ThinkNs <= 0 || list[0].ThinkNs != 0 || list[0].Model != list[1].Model {
			t.Errorf("%+v %+v", res.Counts, list)
		}
		if a, b := recs["0.0"], recs["0.1"]; b.ScheduledNs != a.EndNs+list[1].ThinkNs || *b.InputTokens <= *a.InputTokens {
			t.Errorf("turn 1 was due at %d, turn 0 ended at %d; prompts of %d and %d tokens", b.ScheduledNs, a.EndNs, *a.InputTokens, *b.InputTokens)
		}
		if b, _ := os.ReadFile(s.path(OutputResult, ConditionsFile)); !strings.Contains(string(b), `"most_turns":2`) {
			t.Errorf("conditions: %s", b)
		}
	}
	if digests[0] != digests[1] || digests[0] == digests[2] {
		t.Errorf("times to think must follow from the arrival seed: %v", digests)
	}
	// requests and shuffle are of conversations.
	c := config()
	c["requests"], c["shuffle"] = 2.0, true
	delete(c, "concurrency")
	c["arrival"] = map[string]any{"process": "constant", "rate": 50.0}
	s := generated(t, e, talksFile, c)
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	_, list := s.schedule(t)
	begun := map[string]bool{}
	for i, q := range list {
		begun[q.Conversation] = true
		if q.Turn > 0 && (list[i-1].Conversation != q.Conversation || list[i-1].Turn != q.Turn-1 || list[i-1].AtNs != q.AtNs) {
			t.Errorf("turns are torn apart: %+v", list)
		}
	}
	if len(begun) != 2 {
		t.Errorf("%d conversations, want 2", len(begun))
	}
	for want, change := range map[string]map[string]any{"chat endpoint": {"api": "completions"}, "no conversations": {"workload_form": "text"}} {
		c := config()
		for k, v := range change {
			c[k] = v
		}
		if err := run(context.Background(), generated(t, e, talksFile, c).task); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", change, err, want)
		}
	}
}
