package report

import (
	"strings"
	"testing"

	"assay/schemas"
)

func TestObservedText(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	seen := func() *schemas.Observed {
		return &schemas.Observed{
			Sources: []schemas.ObservedSource{{Name: "metrics", Status: schemas.ObservedSeen, Looks: 5}, {Name: "gpu", Status: schemas.ObservedUnknown, Unknown: "nvidia-smi is not in PATH"}, {Name: "events", Status: schemas.ObservedOff}},
			Series: []schemas.ObservedSeries{
				{Name: "running_requests", Unit: "requests", Kind: "gauge", N: 5, Min: v(0), Mean: v(2.5), Max: v(4), First: v(0), Last: v(0)},
				{Name: "prompt_tokens", Unit: "tokens", Kind: "counter", Delta: v(1234)},
				{Name: "server_ttft_ms", Unit: "ms", Kind: "histogram", N: 17, Mean: v(51.5)},
				{Name: "service_rss_bytes", Unit: "bytes", Kind: "gauge", Min: v(1 << 20), Mean: v(2 << 20), Max: v(3 << 20)},
				{Name: "gpu_power_w", Subject: "gpu 0", Unit: "W", Kind: "gauge", First: v(60), Last: v(61), Unknown: "short"},
				{Name: "kv_cache_use", Unit: "ratio", Kind: "gauge", Unknown: "the service has no such metric"},
			},
			Values:   map[string]schemas.Value{"energy_j": {Unit: "J", Value: v(300)}, "j_per_request": {Unit: "J/request", Reason: "none"}},
			Checks:   []schemas.ObservedCheck{{Name: "requests_finished", Least: v(9), Service: v(10), Agrees: "false"}, {Name: "prompt_tokens", Agrees: "true"}, {Name: "generation_tokens", Agrees: "unknown", Unknown: "no usage"}},
			CPUCores: v(0.0123),
		}
	}
	result := func(trial string, o *schemas.Observed) schemas.StageResult {
		return schemas.StageResult{Stage: "replay", Trial: trial, Result: schemas.Result{Observed: o, Emulated: true}}
	}
	text := ObservedText([]schemas.StageResult{result("t1", seen()), result("t2", nil), result("t3", &schemas.Observed{Sources: []schemas.ObservedSource{{Name: "metrics", Status: schemas.ObservedUnknown}}})})
	for _, want := range []string{
		"observed during replay in t1 (emulated): metrics (5 looks), gpu (unknown: nvidia-smi is not in PATH); looking took 0.012 processors",
		"running_requests               2.500 requests on average (0.000 to 4.000)", "prompt_tokens                  1234 tokens", "51.50 ms, mean of 17",
		"2.0 MiB on average (1.0 MiB to 3.0 MiB)", "gpu_power_w of gpu 0           60.00 W before, 61.00 W after", "energy_j                       300.0 J",
		"not known: kv_cache_use", "requests_finished: THE SERVICE COUNTED 10.00, the client 9.000", "same as the client: prompt_tokens", "generation_tokens: not held against the client's: no usage",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "t2") || strings.Contains(text, "t3") || strings.Contains(text, "events") {
		t.Errorf("what was not seen is told:\n%s", text)
	}
	short := ObservedText([]schemas.StageResult{result("t1", seen()), result("t2", seen())})
	if lines := strings.Split(strings.TrimSpace(short), "\n"); len(lines) != 2 || !strings.Contains(lines[1], "2.500 running (at most 4.000), 3.0 MiB resident, 300.0 J, COUNTS DISAGREE: requests_finished") {
		t.Errorf("two results:\n%s", short)
	}
	if ObservedText(nil) != "" {
		t.Error("text about nothing")
	}
}
