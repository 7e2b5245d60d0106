package observe

import (
	"strings"

	"assay/schemas"
)

// How the values of several label sets become one.
const (
	sumOf = iota
	maxOf
)

// known is a metric of serving engines that is summed up, whatever its prefix.
type known struct {
	name  string
	unit  string
	kind  string
	fold  int
	scale float64
	// names without prefix, the preferred one first; histograms without _sum.
	names []string
}

// catalogue lists what is summed up of a service's metrics. docs/observe.md has it.
var catalogue = []known{
	{"running_requests", "requests", "gauge", sumOf, 1, []string{"num_requests_running", "num_running_reqs", "requests_processing"}},
	{"waiting_requests", "requests", "gauge", sumOf, 1, []string{"num_requests_waiting", "num_waiting_reqs", "num_queue_reqs", "requests_deferred"}},
	{"kv_cache_use", "ratio", "gauge", maxOf, 1, []string{"kv_cache_usage_perc", "gpu_cache_usage_perc", "kv_cache_usage", "kv_cache_usage_ratio", "token_usage"}},
	{"preemptions", "requests", "counter", sumOf, 1, []string{"num_preemptions_total", "num_preemptions", "num_retracted_requests_total"}},
	{"prompt_tokens", "tokens", "counter", sumOf, 1, []string{"prompt_tokens_total", "num_prompt_tokens_total", "num_prompt_tokens", "prompt_tokens"}},
	{"generation_tokens", "tokens", "counter", sumOf, 1, []string{"generation_tokens_total", "num_generation_tokens_total", "num_generation_tokens", "tokens_predicted_total", "generation_tokens"}},
	{"requests_finished", "requests", "counter", sumOf, 1, []string{"request_success_total", "request_success", "num_requests_total"}},
	{"prefix_cache_queries", "tokens", "counter", sumOf, 1, []string{"prefix_cache_queries_total", "gpu_prefix_cache_queries_total", "prefix_cache_query_tokens_total", "prefix_cache_query_tokens", "prefix_cache_queries"}},
	{"prefix_cache_hits", "tokens", "counter", sumOf, 1, []string{"prefix_cache_hits_total", "gpu_prefix_cache_hits_total", "cached_tokens_total", "prefix_cache_hits"}},
	{"server_ttft_ms", "ms", "histogram", sumOf, 1e3, []string{"time_to_first_token_seconds"}},
	{"server_itl_ms", "ms", "histogram", sumOf, 1e3, []string{"inter_token_latency_seconds", "time_per_output_token_seconds"}},
	{"server_queue_ms", "ms", "histogram", sumOf, 1e3, []string{"request_queue_time_seconds", "queue_time_seconds"}},
	{"server_e2e_ms", "ms", "histogram", sumOf, 1e3, []string{"e2e_request_latency_seconds"}},
}

// bare is the name of a metric without the prefix of its engine.
func bare(name string) string {
	if _, rest, ok := strings.Cut(name, ":"); ok {
		return rest
	}
	for _, prefix := range []string{"vllm_", "sglang_", "pypto_serving_", "pypto_", "llamacpp_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return rest
		}
	}
	return name
}

// stats sums up one series as it is looked at.
type stats struct {
	n               int64
	min, max, sum   float64
	first, last     float64
	seenFirst, seen bool
	fell            bool // a counter went back
}

// before takes the value before the first request.
func (s *stats) before(v float64) {
	s.first, s.seenFirst = v, true
	s.end(v)
}

// within takes a value while requests are on their way.
func (s *stats) within(v float64) {
	if s.n == 0 {
		s.min, s.max = v, v
	}
	s.n++
	s.min, s.max = min(s.min, v), max(s.max, v)
	s.sum += v
	s.end(v)
}

// end takes a value after the last answer.
func (s *stats) end(v float64) {
	s.fell = s.fell || s.seen && v < s.last
	s.last, s.seen = v, true
}

// take sorts a value by when it was looked at.
func (s *stats) take(w when, v float64) {
	switch w {
	case beforeAll:
		s.before(v)
	case meanwhile:
		s.within(v)
	default:
		s.end(v)
	}
}

// when is the part of a stage in which a look falls.
type when int

const (
	beforeAll when = iota
	meanwhile
	afterAll
)

// fill writes what is known into a series.
func (s *stats) fill(out *schemas.ObservedSeries) {
	ptr := func(v float64) *float64 { return &v }
	if s.seenFirst {
		out.First = ptr(s.first)
	}
	if s.seen {
		out.Last = ptr(s.last)
	}
	out.N = s.n
	if out.Kind == "counter" {
		switch {
		case s.fell:
			out.Unknown = "it went back: the service was started anew, or something reset it"
		case s.seenFirst && s.seen:
			out.Delta = ptr(s.last - s.first)
		}
		return
	}
	if s.n > 0 {
		out.Min, out.Max, out.Mean = ptr(s.min), ptr(s.max), ptr(s.sum/float64(s.n))
	} else if out.Unknown == "" {
		out.Unknown = "no look fell between the first request and the last answer"
	}
}
