package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/internal/metrics"
	"assay/schemas"
)

// Plan is what a stage will send, as far as its keys tell before it runs; 0 is not
// known.
type Plan struct {
	Requests int
	Sequence int // tokens of the longest request, prompt and answer
	// Limits are the longest sequences of the service's models, by name.
	Limits map[string]int
}

// CheckPlan holds a plan against the limits of models, and its number of requests
// against what percentiles need.
func CheckPlan(subject string, p Plan) []schemas.Finding {
	var out []schemas.Finding
	if p.Sequence > 0 && len(p.Limits) > 0 {
		out = append(out, sequences(subject, p)...)
	}
	if p.Requests > 0 {
		out = append(out, samples(subject, p.Requests))
	}
	return out
}

func sequences(subject string, p Plan) []schemas.Finding {
	var out []schemas.Finding
	for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
		if limit := p.Limits[name]; limit > 0 && p.Sequence > limit {
			out = append(out, schemas.Finding{ID: "workload.sequence", Severity: schemas.SeverityError, Subject: subject, Remedy: "shorten prompts or answers, or raise max_model_len",
				Message: fmt.Sprintf("requests have up to %d tokens, prompt and answer together; model %s takes %d", p.Sequence, name, limit)})
		}
	}
	if len(out) == 0 {
		out = append(out, schemas.Finding{ID: "workload.sequence", Severity: schemas.SeverityPass, Subject: subject, Message: fmt.Sprintf("requests of up to %d tokens fit every model", p.Sequence)})
	}
	return out
}

// samples says which percentiles of a report the requests are too few for.
func samples(subject string, requests int) schemas.Finding {
	var few []string
	most := 0
	for _, p := range metrics.Percentiles {
		if floor := metrics.Floor(p); requests < floor {
			few, most = append(few, "p"+schemas.Decimal(p)), max(most, floor)
		}
	}
	if len(few) == 0 {
		return schemas.Finding{ID: "workload.samples", Severity: schemas.SeverityPass, Subject: subject, Message: fmt.Sprintf("%d requests suffice for the percentiles of a report", requests)}
	}
	return schemas.Finding{ID: "workload.samples", Severity: schemas.SeverityInfo, Subject: subject, Remedy: fmt.Sprintf("send %d or more, or do not rely on them", most),
		Message: fmt.Sprintf("%d requests are too few to be sure of %s", requests, strings.Join(few, ", "))}
}

// common are the fields that Aegaeon takes on both endpoints; it refuses any other.
var common = []string{"model", "max_tokens", "stream", "stream_options", "stop", "n", "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty",
	"repetition_penalty", "seed", "logit_bias", "use_beam_search", "length_penalty", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "min_tokens",
	"skip_special_tokens", "spaces_between_special_tokens", "truncate_prompt_tokens", "truncation_side", "add_special_tokens", "return_token_ids", "priority", "request_id", "user", "logprobs"}

var byEndpoint = map[string][]string{
	"chat":        {"messages", "max_completion_tokens", "add_generation_prompt", "continue_final_message", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs", "mm_processor_kwargs"},
	"completions": {"prompt", "echo"},
}

// fixed are the fields that take one number only, or null.
var fixed = map[string]float64{"n": 1, "temperature": 0, "top_p": 1, "top_k": 1, "min_p": 0, "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1,
	"length_penalty": 1, "priority": 0, "top_logprobs": 0}

// CheckBody holds a request's body, decoded from JSON, against Aegaeon's fixed rules:
// no field that it does not know, and nothing but greedy decoding. api is chat or
// completions.
func CheckBody(subject, api string, body map[string]any) []schemas.Finding {
	var out []schemas.Finding
	add := func(remedy, format string, args ...any) {
		out = append(out, schemas.Finding{ID: "workload.body", Severity: schemas.SeverityError, Subject: subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	known := slices.Concat(common, byEndpoint[api])
	for _, name := range slices.Sorted(maps.Keys(body)) {
		v := body[name]
		want, only := fixed[name]
		switch {
		case !slices.Contains(known, name):
			add("leave it out", "field %.60q is refused with status 422%s", name, near(name, known))
		case v == nil:
		case only && v != want:
			add("leave it out", "field %s takes only %s, have %.40v: status 400", name, schemas.Decimal(want), v)
		case (name == "use_beam_search" || name == "logprobs") && v != false:
			add("leave it out", "field %s takes only false: status 400", name)
		case name == "logit_bias" && fmt.Sprint(v) != "map[]":
			add("leave it out", "field logit_bias takes only {}: status 400")
		}
	}
	most, limited := body["max_tokens"].(float64)
	least, _ := body["min_tokens"].(float64)
	if limited && (most < 1 || least > most) {
		add("make it 1 or more, and no less than min_tokens", "max_tokens is %s with min_tokens %s: status 422", schemas.Decimal(most), schemas.Decimal(least))
	}
	if len(out) == 0 {
		out = append(out, schemas.Finding{ID: "workload.body", Severity: schemas.SeverityPass, Subject: subject, Message: "bodies have only fields and values that the service takes"})
	}
	return out
}

func near(name string, known []string) string {
	if n := schemas.Nearest(name, known); n != "" {
		return "; " + n + " is near"
	}
	return ""
}
