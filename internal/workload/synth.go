package workload

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"assay/schemas"
)

// The shape of generated lengths: log-normal, exp(N(ln mean - sigma^2/2, sigma)),
// so that the mean before limits is the one asked for. Sigmas near 1 give the
// long tails of published chat traces.
const (
	inputSigma  = 1.0
	outputSigma = 0.8
	// minOutput is the shortest output, as in the published generator, where
	// the limit leaves room for it.
	minOutput = 16

	maxSynthModels = 99
	maxQuantiles   = 10_001
)

// SynthSpec describes a generated workload.
type SynthSpec struct {
	Models       int     // synth_model_00, synth_model_01, ...
	RatePerModel float64 // requests per second
	Duration     time.Duration
	InputMean    int // tokens
	OutputMean   int // tokens
	MaxTokens    int // limit of input and output together
	Seed         uint64
	// InputQuantiles and OutputQuantiles, where given, take the place of the means:
	// lengths at shares 0, 1/n, ..., 1, interpolated between.
	InputQuantiles, OutputQuantiles []float64
	// InputScale and OutputScale are factors of the lengths; 0 means 1.
	InputScale, OutputScale float64
	// FixedCount draws as many gaps for each model as its rate and the duration come
	// to, and leaves out what arrives too late, as the published generator does: the
	// workload falls short of its rate.
	FixedCount bool
}

func (s SynthSpec) check() error {
	switch {
	case s.Models < 1 || s.Models > maxSynthModels:
		return fmt.Errorf("synth workload: models = %d, want 1 to %d", s.Models, maxSynthModels)
	case !(s.RatePerModel > 0) || math.IsInf(s.RatePerModel, 0):
		return fmt.Errorf("synth workload: rate = %s, want more than 0 requests per second and model", schemas.Decimal(s.RatePerModel))
	case s.Duration < time.Millisecond || s.Duration > maxOffset:
		return fmt.Errorf("synth workload: duration = %s, want 1ms to %s", s.Duration, maxOffset)
	case s.InputMean < 1 || s.OutputMean < 1 || s.InputMean > maxTokens || s.OutputMean > maxTokens:
		return fmt.Errorf("synth workload: mean lengths %d and %d, want 1 to %d tokens", s.InputMean, s.OutputMean, maxTokens)
	case s.MaxTokens < 2 || s.MaxTokens > maxTokens:
		return fmt.Errorf("synth workload: max_tokens = %d, want 2 to %d", s.MaxTokens, maxTokens)
	}
	if err := errors.Join(checkQuantiles("input", s.InputQuantiles, s.InputScale), checkQuantiles("output", s.OutputQuantiles, s.OutputScale)); err != nil {
		return fmt.Errorf("synth workload: %w", err)
	}
	if n := float64(s.Models) * s.RatePerModel * s.Duration.Seconds(); n > DefaultMaxRows/2 {
		return fmt.Errorf("synth workload: %d models at %s/s for %s are about %.0f requests, the limit is %d: lower one of them",
			s.Models, schemas.Decimal(s.RatePerModel), s.Duration, n, DefaultMaxRows/2)
	}
	return nil
}

// Synth generates a workload of the published form. Each model has a Poisson
// process of its own: exponential gaps until the duration is over (or, like the
// published generator, a fixed count of them: FixedCount). Times are whole
// milliseconds, as the form writes them.
func Synth(s SynthSpec) (Workload, error) {
	if err := s.check(); err != nil {
		return Workload{}, err
	}
	w := Workload{Form: FormAegaeonSynth}
	for m := range s.Models {
		name := fmt.Sprintf("synth_model_%02d", m)
		arrivals := NewRand(s.Seed, "synth/arrivals/"+name)
		lengths := NewRand(s.Seed, "synth/lengths/"+name)
		at, left := 0.0, math.MaxInt
		if s.FixedCount {
			left = int(s.Duration.Seconds() * s.RatePerModel)
		}
		for ; left > 0; left-- {
			at += arrivals.ExpFloat64() / s.RatePerModel
			if at >= s.Duration.Seconds() {
				break
			}
			in, out := s.lengths(lengths)
			ms := int64(at * 1000)
			w.Requests = append(w.Requests, Request{AtNs: ms * int64(time.Millisecond), Model: name, InputTokens: in, OutputTokens: out})
		}
	}
	if len(w.Requests) == 0 {
		return Workload{}, fmt.Errorf("synth workload: no arrival of %d models at %s/s within %s: raise the rate or the duration, or change the seed",
			s.Models, schemas.Decimal(s.RatePerModel), s.Duration)
	}
	w.Requests = byArrival(w.Requests)
	for i := range w.Requests {
		w.Requests[i].ID = strconv.Itoa(i)
	}
	return w, nil
}

// byArrival returns requests in order of arrival, equal ones as they were. Sorting
// places is several times as fast as a stable sort of the requests.
func byArrival(requests []Request) []Request {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(requests[a].AtNs, requests[b].AtNs), a-b) })
	out := make([]Request, len(requests))
	for i, from := range order {
		out[i] = requests[from]
	}
	return out
}

// lengths draws a prompt and an output that fit together under MaxTokens. Pairs
// over it are scaled down together, then the output is kept at minOutput.
func (s SynthSpec) lengths(r *rand.Rand) (in, out int) {
	low := min(minOutput, s.MaxTokens-1)
	fin := math.Max(1, math.Round(length(r, s.InputQuantiles, s.InputScale, s.InputMean, inputSigma)))
	fout := math.Max(float64(low), math.Round(length(r, s.OutputQuantiles, s.OutputScale, s.OutputMean, outputSigma)))
	if limit := float64(s.MaxTokens); fin+fout > limit {
		scale := limit / (fin + fout)
		fin, fout = math.Max(1, math.Floor(fin*scale)), math.Max(float64(low), math.Floor(fout*scale))
		fin = math.Min(fin, limit-float64(low))
		fout = math.Min(fout, limit-fin)
	}
	return int(fin), int(fout)
}

// length draws a length by its quantiles, else from a log-normal distribution. The
// draws do not depend on the scale, so that a scaled workload has the same requests.
func length(r *rand.Rand, quantiles []float64, scale float64, mean int, sigma float64) float64 {
	if scale == 0 {
		scale = 1
	}
	if len(quantiles) == 0 {
		return scale * logNormal(r, mean, sigma)
	}
	at := r.Float64() * float64(len(quantiles)-1)
	i := int(at)
	return scale * (quantiles[i] + (at-float64(i))*(quantiles[i+1]-quantiles[i]))
}

func checkQuantiles(name string, quantiles []float64, scale float64) error {
	if !(scale >= 0) || scale > 1e3 {
		return fmt.Errorf("%s_scale = %s, want more than 0 and at most 1000", name, schemas.Decimal(scale))
	}
	if len(quantiles) == 1 || len(quantiles) > maxQuantiles {
		return fmt.Errorf("%s_quantiles has %d lengths, want 2 to %d", name, len(quantiles), maxQuantiles)
	}
	for i, q := range quantiles {
		if !(q >= 1) || q > maxTokens || (i > 0 && q < quantiles[i-1]) {
			return fmt.Errorf("%s_quantiles: length %d is %s, want 1 to %d tokens and none below the one before", name, i, schemas.Decimal(q), maxTokens)
		}
	}
	return nil
}

func logNormal(r *rand.Rand, mean int, sigma float64) float64 {
	return math.Exp(math.Log(float64(mean)) - sigma*sigma/2 + sigma*r.NormFloat64())
}

// WriteCSV writes w in the published form, with CRLF line ends. Request ids are
// not part of the form. Times must be whole milliseconds.
func WriteCSV(out io.Writer, w Workload) error {
	b := bufio.NewWriter(out)
	if _, err := b.WriteString(synthHeader + "\r\n"); err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	for _, r := range w.Requests {
		if err := checkRow(r); err != nil {
			return fmt.Errorf("write workload: request %s: %w", r.ID, err)
		}
		ms := r.AtNs / int64(time.Millisecond)
		_, err := fmt.Fprintf(b, "%02d:%02d:%02d.%03d,%s,%d,%d\r\n",
			ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000, r.Model, r.InputTokens, r.OutputTokens)
		if err != nil {
			return fmt.Errorf("write workload: %w", err)
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	return nil
}

func checkRow(r Request) error {
	if r.AtNs < 0 || r.AtNs%int64(time.Millisecond) != 0 || r.AtNs > int64(maxOffset) {
		return fmt.Errorf("time %d ns is not a whole, non-negative number of milliseconds below %s", r.AtNs, maxOffset)
	}
	if r.InputTokens < 1 || r.OutputTokens < 1 || r.InputTokens > maxTokens || r.OutputTokens > maxTokens {
		return fmt.Errorf("lengths %d and %d are not within 1 to %d", r.InputTokens, r.OutputTokens, maxTokens)
	}
	if err := checkName(r.Model); err != nil {
		return fmt.Errorf("model name %q %w", r.Model, err)
	}
	for _, c := range r.Model {
		if c == ',' || c == '"' {
			return fmt.Errorf("model name %q has a comma or a quote, which the form cannot hold", r.Model)
		}
	}
	return nil
}
