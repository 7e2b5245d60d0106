package report

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"assay/internal/metrics"
	"assay/schemas"
)

// FoldOptions are what the records do not say themselves.
type FoldOptions struct {
	// SLO is what qos and attainment are judged by; without it they are unknown.
	SLO *schemas.SLO
	// Speed the arrivals were replayed at; 0 means 1.
	Speed float64
	// OpenLoop makes the TTFT from the schedule the headline.
	OpenLoop bool
	Emulated bool
	// Simulated: the records are a model's; nothing was sent or stamped.
	Simulated bool
	// TimeOver says that a closed loop was to end at a time: what was in flight then
	// is counted apart.
	TimeOver bool
	// FirstUse says that the service was just started: what was sent before its
	// first answer began is the phase startup. It takes a Course.
	FirstUse bool
	// Expected is the number of scheduled requests, when it is known: fewer
	// records are a finding.
	Expected int
	// Subject names the stage in findings.
	Subject string
	// Course is what Look found in the same records; without it there is no steady
	// window and no peak.
	Course *Course
}

// Records iterates over records in memory.
func Records(recs []schemas.RequestRecord) iter.Seq2[schemas.RequestRecord, error] {
	return func(yield func(schemas.RequestRecord, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Fold turns the records of one measure stage into its result. The order of the
// records does not matter. A record that contradicts itself, or an index that
// appears twice, is an error.
func Fold(records iter.Seq2[schemas.RequestRecord, error], opts FoldOptions) (schemas.Result, error) {
	if opts.Speed == 0 {
		opts.Speed = 1
	}
	if err := checkOptions(opts); err != nil {
		return schemas.Result{}, fmt.Errorf("fold: %w", err)
	}
	f := &fold{opts: opts, all: newGroup(), models: map[string]*group{}, seen: map[int]bool{}, phases: map[phaseKey]*group{}, atEnd: map[string]int{}}
	if c := opts.Course; c != nil {
		f.full = newSpan(c.Full)
		if c.Unknown == "" {
			f.steady = newSpan(c.Steady)
			f.steadyGroup = newGroup()
		}
	}
	for rec, err := range records {
		if err != nil {
			return schemas.Result{}, fmt.Errorf("fold: %w", err)
		}
		if err := f.add(&rec); err != nil {
			return schemas.Result{}, fmt.Errorf("fold: request %s (index %d): %w", rec.ID, rec.Index, err)
		}
	}
	return f.result(), nil
}

func checkOptions(o FoldOptions) error {
	if !(o.Speed > 0) || math.IsInf(o.Speed, 0) {
		return fmt.Errorf("speed %s is not a positive number", schemas.Decimal(o.Speed))
	}
	if o.SLO == nil {
		return nil
	}
	for _, ms := range []float64{o.SLO.TTFTMs, o.SLO.TPOTMs} {
		if !(ms >= 0) || math.IsInf(ms, 0) {
			return fmt.Errorf("slo target %s ms is not a non-negative number", schemas.Decimal(ms))
		}
	}
	return nil
}

// fold is the state of one fold.
type fold struct {
	opts   FoldOptions
	all    *group
	models map[string]*group
	seen   map[int]bool

	window     metrics.Window
	scheduled  []int64
	dispatched []int64
	stamps     map[string]bool
	notes      tally

	full, steady *span // nil without a course
	steadyGroup  *group
	phases       map[phaseKey]*group
	switches     switchRows
	atEnd        map[string]int
}

// tally counts what becomes findings.
type tally struct {
	qosUndefined, estimated, disagree     int
	inputDiffers, outputDiffers, lateSend int
	reconnected                           int
	qosOfOK                               []float64
}

// group collects what belongs to one model, or to all.
type group struct {
	counts  schemas.Counts
	samples map[string]*metrics.Samples

	sloMet, tokensOnTime, tokensDue int
	// paceless counts requests with several tokens at one time, unspaced those among
	// them whose tokens came in several events.
	paceless, unspaced int
}

func newGroup() *group {
	g := &group{samples: map[string]*metrics.Samples{}}
	g.counts.Outcomes = map[schemas.Outcome]int{}
	g.counts.OutputTokenSources = map[string]int{}
	for _, d := range distributions {
		g.samples[d.name] = &metrics.Samples{Dependent: d.name == "itl_chunk_ms" || d.name == "itl_token_ms"}
	}
	return g
}

func (f *fold) add(r *schemas.RequestRecord) error {
	if err := checkRecord(r); err != nil {
		return err
	}
	if f.seen[r.Index] {
		return errors.New("appears twice in the records")
	}
	f.seen[r.Index] = true
	if r.AtEnd != "" {
		f.atEnd[r.AtEnd]++
	}
	f.addTimes(r)
	f.addNotes(r)
	g := f.models[r.Model]
	if g == nil {
		g = newGroup()
		f.models[r.Model] = g
	}
	qos, err := f.qos(r)
	if err != nil {
		return err
	}
	groups := append([]*group{f.all, g}, f.parts(r)...)
	for _, to := range groups {
		to.count(r)
		to.sample(r)
		if qos != nil {
			to.samples["qos"].Add(*qos)
		}
		if f.opts.SLO != nil {
			to.judge(r, *f.opts.SLO, f.opts.OpenLoop)
		}
	}
	return nil
}

// qos is nil without an SLO, and where it is undefined.
func (f *fold) qos(r *schemas.RequestRecord) (*float64, error) {
	if f.opts.SLO == nil {
		return nil, nil
	}
	v, err := metrics.RequestQoS(r, *f.opts.SLO)
	if errors.Is(err, metrics.ErrQoSUndefined) {
		f.notes.qosUndefined++
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Outcome == schemas.OutcomeOK {
		f.notes.qosOfOK = append(f.notes.qosOfOK, v)
	}
	return &v, nil
}

func (f *fold) addTimes(r *schemas.RequestRecord) {
	if len(f.scheduled) == 0 {
		f.window = metrics.Window{FromNs: r.ScheduledNs, ToNs: r.EndNs}
		f.stamps = map[string]bool{}
	}
	f.window.FromNs = min(f.window.FromNs, r.ScheduledNs)
	f.window.ToNs = max(f.window.ToNs, r.EndNs)
	f.scheduled = append(f.scheduled, r.ScheduledNs)
	f.stamps[r.StampSource] = true
	if r.DispatchedNs != nil {
		f.dispatched = append(f.dispatched, *r.DispatchedNs)
	}
}

func (g *group) count(r *schemas.RequestRecord) {
	c := &g.counts
	c.Issued++
	c.Outcomes[r.Outcome]++
	source := r.OutputTokensSource
	if r.OutputTokens == nil || source == "" {
		source = "none"
	}
	c.OutputTokenSources[source]++
	if r.Outcome != schemas.OutcomeOK {
		return
	}
	c.OK++
	if r.InputTokens != nil {
		c.InputTokens += int64(*r.InputTokens)
	} else {
		c.InputTokens += int64(r.AskedInputTokens)
	}
	if r.OutputTokens != nil {
		c.OutputTokens += int64(*r.OutputTokens)
	}
}

func (g *group) judge(r *schemas.RequestRecord, slo schemas.SLO, openLoop bool) {
	if metrics.SLOMet(r, slo, openLoop) {
		g.sloMet++
	}
	onTime, due := metrics.TokensOnTime(r, slo)
	g.tokensOnTime += onTime
	g.tokensDue += due
}

func (f *fold) result() schemas.Result {
	out := schemas.Result{
		Schema: schemas.ResultV1, MetricsVersion: metrics.Version, Emulated: f.opts.Emulated, Simulated: f.opts.Simulated,
		Headline: "ttft_ms", StampSource: f.stampSource(), Counts: f.all.counts,
		Metrics: f.all.summaries(f.opts), Values: f.values(), Models: []schemas.ModelResult{},
		SLO: f.opts.SLO, Speed: f.opts.Speed, Comparable: f.opts.Speed == 1,
	}
	if f.opts.OpenLoop {
		out.Headline = "ttft_from_schedule_ms"
	}
	for _, name := range f.modelNames() {
		g := f.models[name]
		out.Models = append(out.Models, schemas.ModelResult{Model: name, Counts: g.counts, Metrics: g.summaries(f.opts)})
	}
	f.windows(&out)
	out.Findings = f.findings(out)
	return out
}

func (f *fold) modelNames() []string {
	names := make([]string, 0, len(f.models))
	for n := range f.models {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (f *fold) stampSource() string {
	switch {
	case f.opts.Simulated:
		return schemas.StampSimulated
	case len(f.stamps) == 1 && f.stamps["kernel"]:
		return "kernel"
	case len(f.stamps) == 1 && f.stamps["user"]:
		return "user"
	case len(f.stamps) > 1:
		return "mixed"
	}
	return "unknown"
}
