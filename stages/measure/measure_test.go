package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"assay/internal/durable"
	"assay/internal/loadgen"
	"assay/pipeline"
	"assay/schemas"
)

func TestMeasuresTheSynthForm(t *testing.T) {
	var file atomic.Value
	var scheduled atomic.Bool
	e := startEngine(t, fast("m0", "m1"), func() {
		_, err := os.Stat(file.Load().(string))
		scheduled.Store(err == nil)
	})
	s := newStage(t, e, synthForm, map[string]any{"slo": map[string]any{"ttft": "10s", "tpot": "100ms"}})
	file.Store(s.path(OutputSchedule, ScheduleFile))
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	e.stop()
	if !scheduled.Load() {
		t.Error("the schedule was not there when the first connection was made")
	}
	res := s.result(t)
	if res.Counts.OK != 4 || res.Counts.OutputTokens != 22 || !res.Emulated || !res.Comparable || res.Headline != "ttft_from_schedule_ms" {
		t.Errorf("result: %+v", res.Counts)
	}
	if q := res.Metrics["qos"].Mean; q == nil || *q <= 0 || *q > 1 {
		t.Errorf("qos: %v", q)
	}
	header, list := s.schedule(t)
	if header.Requests != 4 || header.WorkloadForm != "aegaeon-synth" || header.ContentSeed != 42 || header.WorkloadDigest != schemas.DigestOf([]byte(synthForm)) {
		t.Errorf("schedule: %+v", header)
	}
	recs := s.records(t)
	for _, q := range list {
		r, ok := recs[q.ID]
		if !ok || r.ScheduledNs != q.AtNs || r.Model != q.Model || r.AskedOutputTokens != q.OutputTokens {
			t.Errorf("request %s: scheduled %+v, recorded %+v", q.ID, q, r)
		}
		if r.DispatchedNs == nil || *r.DispatchedNs < r.ScheduledNs {
			t.Errorf("request %s was sent before its time", q.ID)
		}
		if want := loadgen.PromptDigest("completions", 42, loadgen.Request{ScheduledRequest: q}); q.PromptDigest != want {
			t.Errorf("request %s: prompt digest %s, want %s", q.ID, q.PromptDigest, want)
		}
		// One millisecond of prefill and of each later token is the least it takes.
		if least := int64(q.OutputTokens) * int64(time.Millisecond); *r.DoneNs-*r.DispatchedNs < least {
			t.Errorf("request %s took %d ns, less than %d", q.ID, *r.DoneNs-*r.DispatchedNs, least)
		}
	}
	if len(s.states) == 0 || !strings.Contains(s.states[len(s.states)-1], "4/4, 0 in flight") || !strings.Contains(s.log.String(), "ok 4") {
		t.Errorf("progress %q, log %q", s.states, s.log.String())
	}
}

func TestEqualSeedsGiveEqualSchedules(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	var files []string
	for _, seed := range []uint64{42, 42, 43} {
		s := newStage(t, e, synthForm, map[string]any{"api": "chat"})
		s.task.Seed = seed
		if err := run(context.Background(), s.task); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(s.path(OutputSchedule, ScheduleFile))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, string(b))
	}
	if files[0] != files[1] || files[0] == files[2] {
		t.Error("a schedule must follow from the seed alone, and from all of it")
	}
}

func TestRequestsFormWindowAndSpeed(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	s := newStage(t, e, requestsForm, map[string]any{"timestamp_unit": "ms", "window": []any{"5ms", "20ms"}, "speed": 2.0})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	_, list := s.schedule(t)
	if len(list) != 1 || list[0].ID != "r-b" || list[0].AtNs != 2_500_000 {
		t.Errorf("schedule: %+v", list)
	}
	if res := s.result(t); res.Comparable || res.Speed != 2 || res.Counts.Issued != 1 {
		t.Errorf("result: %+v", res)
	}
	found := false
	for _, f := range s.findings {
		found = found || f.ID == "result.speed"
	}
	if !found {
		t.Errorf("no finding says that qos is not comparable: %+v", s.findings)
	}
}

func TestConditionsNameEverything(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	s := newStage(t, e, synthForm, map[string]any{})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.path(OutputResult, ConditionsFile))
	if err != nil {
		t.Fatal(err)
	}
	var list []schemas.Condition
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	have := map[string]schemas.Condition{}
	for _, c := range list {
		if (c.Value == nil) == (c.Unknown == "") {
			t.Errorf("condition %s needs a value or a reason, and not both: %+v", c.Name, c)
		}
		have[c.Name] = c
	}
	for _, name := range []string{
		"model", "checkpoint_path", "checkpoint_fingerprint", "checkpoint_fingerprint_level", "platform", "device_ids", "command_line",
		"prompt_length_asked", "prompt_length_actual", "generated_tokens_asked", "generated_tokens_actual", "sampling_settings", "stream_mode",
		"max_model_len", "max_num_seqs", "max_num_batched_tokens", "profiling", "chunked_prefill", "speculative_decoding", "prefix_caching",
		"data_type", "parallelism", "compile_cache", "prepacked_weights", "engine", "engine_version", "engine_configuration", "driver_version",
		"framework_version", "kernel_version", "arrival_process", "arrival_seed", "workload_digest", "concurrency", "warm_up", "trial_order",
		"client_version", "host", "speed", "window", "stamp_source",
	} {
		if _, ok := have[name]; !ok {
			t.Errorf("condition %s is missing", name)
		}
	}
	if bytes.Contains(b, []byte(e.view.URL)) {
		t.Error("conditions hold the service's URL")
	}
	if m, ok := have["warm_up"].Value.(map[string]any); !ok || m["warm"] == nil {
		t.Errorf("warm_up: %+v, want the stage warm", have["warm_up"])
	}
	if have["checkpoint_path"].Value != "${machine.models}/q" || have["trial_order"].Value != "abba" {
		t.Errorf("checkpoint path %v, order %v", have["checkpoint_path"].Value, have["trial_order"].Value)
	}
}

func TestFlagsOfACommand(t *testing.T) {
	argv := []string{"vllm", "serve", "--max-model-len", "4096", "--dtype=bfloat16", "--enable-prefix-caching", "--tp", "2"}
	for _, c := range []struct{ flag, want string }{
		{"--max-model-len", "--max-model-len 4096"}, {"--dtype", "--dtype=bfloat16"},
		{"--enable-prefix-caching", "--enable-prefix-caching"}, {"--max-num-seqs", ""},
	} {
		if got := strings.Join(flagsOf(argv, []string{c.flag}), "|"); got != c.want {
			t.Errorf("%s: %q, want %q", c.flag, got, c.want)
		}
	}
}

func TestFailuresAreJudgedByAllowErrors(t *testing.T) {
	for _, c := range []struct {
		allow float64
		fails bool
	}{{1, false}, {0.5, false}, {0.4, true}, {0, true}} {
		config := fast("m0", "m1")
		config["fault"] = map[string]any{"kind": "http_500", "after_requests": 2.0}
		s := newStage(t, startEngine(t, config, func() {}), synthForm, map[string]any{"allow_errors": c.allow})
		err := run(context.Background(), s.task)
		if (err != nil) != c.fails {
			t.Errorf("allow_errors %v: error %v, want one: %v", c.allow, err, c.fails)
		}
		if err != nil && !strings.Contains(err.Error(), "http_5xx 2") {
			t.Errorf("error without counts: %v", err)
		}
		if res := s.result(t); res.Counts.Issued != 4 || res.Counts.OK != 2 {
			t.Errorf("published counts: %+v", res.Counts)
		}
	}
}

func TestServiceDeathIsSaidAndEveryRequestHasItsRecord(t *testing.T) {
	config := fast("m0", "m1")
	config["fault"] = map[string]any{"kind": "die", "after_requests": 1.0, "after_tokens": 1.0}
	late := synthForm + "00:10:00.000,m0,8,4\r\n" // far beyond the death
	s := newStage(t, startEngine(t, config, func() {}), late, map[string]any{})
	err := run(context.Background(), s.task)
	if err == nil || !strings.Contains(err.Error(), "service engine died") || !strings.Contains(err.Error(), "killed by signal 9") {
		t.Fatalf("error: %v", err)
	}
	recs := s.records(t)
	if len(recs) != 5 || recs["4"].Outcome != schemas.OutcomeNotSent {
		t.Errorf("records: %d, last %s", len(recs), recs["4"].Outcome)
	}
	if res := s.result(t); res.Counts.Issued != 5 || res.Counts.OK == 5 {
		t.Errorf("counts: %+v", res.Counts)
	}
}

func TestInterruptionLeavesAWholeAccount(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("interrupted by the user")
	config := fast("m0", "m1")
	config["fault"] = map[string]any{"kind": "hang", "after_tokens": 1.0}
	s := newStage(t, startEngine(t, config, func() { cancel(reason) }), synthForm+"00:10:00.000,m0,8,4\r\n", map[string]any{"predial": 0.0, "observe": map[string]any{"metrics": "off"}}) // the first connection is a request
	if err := run(ctx, s.task); !errors.Is(err, reason) {
		t.Fatalf("error %v, want the cause", err)
	}
	recs := s.records(t)
	if len(recs) != 5 || recs["0"].Outcome != schemas.OutcomeCancelled || recs["4"].Outcome != schemas.OutcomeNotSent {
		t.Errorf("records: %d, first %s, last %s", len(recs), recs["0"].Outcome, recs["4"].Outcome)
	}
	if res := s.result(t); res.Counts.Issued != 5 {
		t.Errorf("counts: %+v", res.Counts)
	}
}

func TestRefusesWhatCannotBeSent(t *testing.T) {
	e := startEngine(t, fast("m0"), func() {})
	for _, c := range []struct {
		name, workload string
		config         map[string]any
		want           string
	}{
		{"too many models", synthForm, map[string]any{}, "2 models"},
		{"unknown model", synthForm, map[string]any{"models": []any{"m0", "mX"}}, `does not list model "mX"`},
		{"bad line", "Request Time,Model Name,Input Length,Output Length\n00:00:00.000,m,0,1\n", map[string]any{}, "w.csv:2"},
		{"empty window", "Request Time,Model Name,Input Length,Output Length\n00:00:00.000,m,8,1\n", map[string]any{"window": []any{"5s", "6s"}}, "no request arrives in the window"},
		{"bad window", "Request Time,Model Name,Input Length,Output Length\n00:00:00.000,m,8,1\n", map[string]any{"window": []any{"5", "6s"}}, "window: from"},
		{"half a window", "Request Time,Model Name,Input Length,Output Length\n00:00:00.000,m,8,1\n", map[string]any{"window": []any{"5s"}}, "want two times"},
	} {
		s := newStage(t, e, c.workload, c.config)
		err := run(context.Background(), s.task)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), filepath.Dir(s.task.Dir)) {
			t.Errorf("%s: the error names a folder of this machine: %v", c.name, err)
		}
		if left, _ := os.ReadDir(filepath.Join(s.task.Dir, "outputs")); len(left) != 0 {
			t.Errorf("%s: published %v", c.name, left)
		}
	}
}

func TestAFullDiskIsNotTheExperimentsFault(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	for _, c := range []struct {
		op   durable.Op
		file string
	}{
		{durable.OpWrite, RequestsFile}, {durable.OpFsync, RequestsFile}, {durable.OpCreate, RequestsFile}, {durable.OpRename, ScheduleFile}, {durable.OpRename, ResultFile},
	} {
		s := newStage(t, e, synthForm, map[string]any{})
		full := errors.New("no space left")
		durable.SetHook(func(op durable.Op, path string) error {
			if op == c.op && filepath.Base(path) == c.file {
				return full
			}
			return nil
		})
		err := run(context.Background(), s.task)
		durable.SetHook(nil)
		var infra *pipeline.InfraError
		if !errors.As(err, &infra) || !errors.Is(err, full) {
			t.Errorf("%s of %s fails: error %v, want an infrastructure error", c.op, c.file, err)
		}
	}
}
