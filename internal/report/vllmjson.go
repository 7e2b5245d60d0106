package report

import (
	"fmt"
	"strings"
	"time"

	"assay/internal/metrics"
	"assay/schemas"
)

// VLLMRun is what vLLM's result file says of a run beside its numbers.
type VLLMRun struct {
	Started time.Time
	API     string
	Models  []string
	// RequestRate is requests per second, 0 for "inf" (a closed loop).
	RequestRate float64
	// Burstiness is the gamma shape; 0 means 1.
	Burstiness     float64
	MaxConcurrency int // 0: none
	// Metadata is added at the top, where it takes no name of the form.
	Metadata map[string]string
}

// VLLMJSON gives a view by vLLM's definitions in the form that its benchmark writes
// with --save-result --save-detailed, for scripts that read that. Texts are not
// archived, so generated_texts is absent. Percentiles are numpy's linear ones.
func VLLMJSON(v View, run VLLMRun) (map[string]any, error) {
	if v.Tool != "vllm" {
		return nil, fmt.Errorf("result file of vllm: the view is %s's", v.Tool)
	}
	backend := "openai"
	if run.API == "chat" {
		backend = "openai-chat"
	}
	out := map[string]any{
		"date": run.Started.UTC().Format("20060102-150405"), "endpoint_type": backend, "backend": backend, "label": nil,
		"model_id": strings.Join(run.Models, ","), "tokenizer_id": strings.Join(run.Models, ","), "num_prompts": len(v.details),
		"request_rate": any("inf"), "burstiness": 1.0, "max_concurrency": nil,
		"duration": v.DurationS, "completed": v.Completed, "failed": v.Failed,
		"total_input_tokens": v.InputTokens, "total_output_tokens": v.OutputTokens, "request_throughput": v.RequestsPerS,
		"request_goodput": v.GoodputPerS, "output_throughput": v.OutputPerS, "total_token_throughput": v.TotalPerS,
		"max_output_tokens_per_s": v.MaxOutputPerS, "max_concurrent_requests": v.MaxConcurrent,
	}
	if run.RequestRate > 0 {
		out["request_rate"] = run.RequestRate
	}
	if run.Burstiness > 0 {
		out["burstiness"] = run.Burstiness
	}
	if run.MaxConcurrency > 0 {
		out["max_concurrency"] = run.MaxConcurrency
	}
	for i := range v.Rows {
		vllmNumbers(out, v.Rows[i].Name, &v.Rows[i].samples)
	}
	if v.queue.N() > 0 {
		vllmNumbers(out, "client_queue_time", &v.queue)
		vllmNumbers(out, "e2el_including_client_queue", &v.withQue)
	}
	v.vllmDetails(out)
	for k, x := range run.Metadata {
		if _, taken := out[k]; !taken {
			out[k] = x
		}
	}
	return out, nil
}

// vllmNumbers writes zeros for no samples, as that tool does.
func vllmNumbers(out map[string]any, name string, s *metrics.Samples) {
	mean, _ := metrics.Mean(s.Values)
	sd, _ := metrics.StdDev(s.Values)
	median, _, _ := s.Percentile(50)
	out["mean_"+name+"_ms"], out["std_"+name+"_ms"], out["median_"+name+"_ms"] = mean, sd, median
	for _, p := range []float64{90, 95, 99} {
		q, _, _ := s.Percentile(p)
		out[fmt.Sprintf("p%v_%s_ms", p, name)] = q
	}
}

// vllmDetails writes the lists of --save-detailed, in seconds. A failed request has
// a TTFT of 0 there, which is why nobody should take percentiles of them.
func (v View) vllmDetails(out map[string]any) {
	inputs, outputs, ttfts, itls, starts, errs := []int{}, []int{}, []float64{}, [][]float64{}, []float64{}, []string{}
	for _, d := range v.details {
		gaps := make([]float64, len(d.itl))
		for i, g := range d.itl {
			gaps[i] = g / 1e3
		}
		text := d.text
		if d.ok {
			text = ""
		}
		inputs, outputs, ttfts, itls = append(inputs, d.input), append(outputs, d.output), append(ttfts, d.ttft/1e3), append(itls, gaps)
		starts, errs = append(starts, float64(d.start)/1e9), append(errs, text)
	}
	out["input_lens"], out["output_lens"], out["ttfts"], out["itls"], out["start_times"], out["errors"] = inputs, outputs, ttfts, itls, starts, errs
}

// ViewText writes views as a table for people, each under its stage's name.
func ViewText(names []string, views []View) string {
	var b strings.Builder
	for i, v := range views {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s, by the definitions of %s\n", names[i], v.Tool)
		g := grid{left: 1}
		g.row("ms", "mean", "median", "std", "p90", "p99", "max", "n")
		for _, r := range v.Rows {
			s := r.Summary
			g.row(r.Name, number(s.Mean), number(percentileOf(s, 50)), number(s.StdDev), number(percentileOf(s, 90)), number(percentileOf(s, 99)), number(s.Max), fmt.Sprint(s.N))
		}
		g.write(&b, "  ")
		fmt.Fprintf(&b, "  completed %d, failed %d, duration %.3f s, %.3f req/s, %.1f output tokens/s, %.1f tokens/s", v.Completed, v.Failed, v.DurationS, v.RequestsPerS, v.OutputPerS, v.TotalPerS)
		if v.GoodputPerS != nil {
			fmt.Fprintf(&b, ", goodput %.3f req/s", *v.GoodputPerS)
		}
		b.WriteByte('\n')
		if v.AtOneTime > 0 {
			fmt.Fprintf(&b, "  requests whose tokens all came at one time: %d; %s counts the gaps between those as 0, our own figures leave them out\n", v.AtOneTime, v.Tool)
		}
		if v.Aegaeon != nil {
			b.WriteString(v.Aegaeon.text())
		}
	}
	return b.String()
}

func percentileOf(s schemas.Summary, p float64) *float64 {
	for _, row := range s.Percentiles {
		if row.P == p {
			return row.Value
		}
	}
	return nil
}
