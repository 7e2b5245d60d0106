package report

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"assay/internal/metrics"
	"assay/schemas"
)

// View is one stage's records folded by another tool's definitions, so that a
// difference between its numbers and ours is explained and not argued over.
type View struct {
	Tool          string    `json:"tool"`
	Completed     int       `json:"completed"`
	Failed        int       `json:"failed"`
	DurationS     float64   `json:"duration_s"` // first scheduled to last end, drain included
	InputTokens   int64     `json:"total_input_tokens"`
	OutputTokens  int64     `json:"total_output_tokens"`
	RequestsPerS  float64   `json:"request_throughput"`
	OutputPerS    float64   `json:"output_throughput"`
	TotalPerS     float64   `json:"total_token_throughput"`
	GoodputPerS   *float64  `json:"request_goodput,omitempty"` // of the stage's slo
	Rows          []ViewRow `json:"rows"`
	MaxOutputPerS float64   `json:"max_output_tokens_per_s"` // vllm: events in one-second buckets
	MaxConcurrent int       `json:"max_concurrent_requests"` // vllm: requests that touch a one-second bucket
	// AtOneTime counts completed requests with several tokens that all came at one
	// time: the tool takes the gaps between them as 0, ours leave them out.
	AtOneTime int `json:"requests_with_tokens_at_one_time,omitempty"`
	// Aegaeon holds that system's own numbers.
	Aegaeon        *AegaeonNumbers `json:"aegaeon,omitempty"`
	details        []detail
	firstStart     int64
	queue, withQue metrics.Samples
}

// ViewRow is a distribution, failed requests left out as all these tools do.
type ViewRow struct {
	Name    string `json:"name"`
	samples metrics.Samples
	Summary schemas.Summary `json:"summary"`
}

// detail is what the interchange format lists of each request.
type detail struct {
	input, output int
	ttft          float64
	itl           []float64
	start, end    int64
	ok            bool
	text          string
}

// ViewNames lists the tools.
func ViewNames() []string {
	var out []string
	for _, p := range metrics.Peers() {
		out = append(out, p.Name)
	}
	return append(out, aegaeonTool)
}

// FoldView folds by the definitions of a tool that ViewNames lists. slo may be nil.
func FoldView(tool string, records iter.Seq2[schemas.RequestRecord, error], slo *schemas.SLO) (View, error) {
	if tool == aegaeonTool {
		return foldAegaeon(records, slo)
	}
	var peer *metrics.Peer
	for _, p := range metrics.Peers() {
		if p.Name == tool {
			peer = &p
		}
	}
	if peer == nil {
		return View{}, fmt.Errorf("view %q: want one of %s", tool, strings.Join(ViewNames(), ", "))
	}
	v := View{Tool: tool, Rows: []ViewRow{{Name: "ttft"}, {Name: "tpot"}, {Name: "itl"}, {Name: "e2el"}}}
	var window metrics.Window
	good, n := 0, 0
	for r, err := range records {
		if err == nil {
			err = checkRecord(&r)
		}
		if err != nil {
			return View{}, fmt.Errorf("view %s: %w", tool, err)
		}
		if n == 0 {
			window = metrics.Window{FromNs: r.ScheduledNs, ToNs: r.EndNs}
		}
		n++
		window.FromNs, window.ToNs = min(window.FromNs, r.ScheduledNs), max(window.ToNs, r.EndNs)
		if v.add(*peer, &r, slo) {
			good++
		}
	}
	v.rates(window)
	if slo != nil {
		g, _ := window.Rate(float64(good))
		v.GoodputPerS = &g
	}
	for i := range v.Rows {
		v.Rows[i].Summary = metrics.Summarize("ms", &v.Rows[i].samples)
	}
	v.seconds()
	return v, nil
}

// rates are over the full run.
func (v *View) rates(window metrics.Window) {
	v.DurationS = max(0, window.Seconds())
	rate := func(x float64) float64 { y, _ := window.Rate(x); return y }
	v.RequestsPerS, v.OutputPerS, v.TotalPerS = rate(float64(v.Completed)), rate(float64(v.OutputTokens)), rate(float64(v.InputTokens+v.OutputTokens))
}

// add takes one record and says whether it met the targets.
func (v *View) add(p metrics.Peer, r *schemas.RequestRecord, slo *schemas.SLO) bool {
	d := detail{input: r.AskedInputTokens, ok: p.Success(r), text: r.Error, end: r.EndNs}
	if d.input == 0 && r.InputTokens != nil {
		d.input = *r.InputTokens
	}
	if r.DispatchedNs != nil {
		d.start = *r.DispatchedNs
	}
	defer func() { v.details = append(v.details, d) }()
	if !d.ok {
		v.Failed++
		return false
	}
	v.Completed++
	d.output = p.Tokens(r)
	if metrics.AtOneTime(r) && d.output > 1 {
		v.AtOneTime++
	}
	v.InputTokens += int64(d.input)
	v.OutputTokens += int64(d.output)
	ttft, hasTTFT := p.TTFT(r)
	tpot, hasTPOT := p.TPOT(r)
	e2e, hasE2E := p.E2E(r)
	d.itl = p.ITL(r)
	if hasTTFT {
		v.Rows[0].samples.Add(ttft)
		d.ttft = ttft
	}
	if hasTPOT {
		v.Rows[1].samples.Add(tpot)
	}
	for _, x := range d.itl {
		v.Rows[2].samples.Add(x)
	}
	if hasE2E {
		v.Rows[3].samples.Add(e2e)
		d.end = d.start + int64(e2e*1e6+0.5)
		if q, ok := metrics.QueueMs(r); ok {
			v.queue.Add(q)
			v.withQue.Add(q + e2e)
		}
	}
	// A request of one token counts as a TPOT of 0, as in vLLM.
	return slo != nil && hasTTFT && ttft <= slo.TTFTMs && tpot <= slo.TPOTMs
}

// seconds counts as vLLM does, by whole seconds from the first start: the events
// that arrived in one, and the requests that touched one.
func (v *View) seconds() {
	first := int64(-1)
	for _, d := range v.details {
		if d.ok && (first < 0 || d.start < first) {
			first = d.start
		}
	}
	v.firstStart = max(first, 0)
	events, requests := map[int64]int{}, map[int64]int{}
	for _, d := range v.details {
		if !d.ok {
			continue
		}
		at := float64(d.start-v.firstStart)/1e9 + d.ttft/1e3
		events[int64(at)]++
		for _, gap := range d.itl {
			at += gap / 1e3
			events[int64(at)]++
		}
		from, to := (d.start-v.firstStart)/1e9, (d.end-v.firstStart)/1e9
		requests[from]++
		requests[max(to, from)+1]--
	}
	for _, n := range events {
		v.MaxOutputPerS = max(v.MaxOutputPerS, float64(n))
	}
	now := 0
	for _, s := range slices.Sorted(maps.Keys(requests)) {
		now += requests[s]
		v.MaxConcurrent = max(v.MaxConcurrent, now)
	}
}
