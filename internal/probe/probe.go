package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"assay/internal/loadgen"
	"assay/internal/report"
	"assay/internal/workload"
	"assay/schemas"
)

// Limits of a probe.
const (
	// MaxRequests is the most that a timed probe sends: more are for a measurement.
	MaxRequests = 100_000
	// maxText is what is kept of an answer's text. It is cut when secrets are out of it,
	// for a part of one could not be told; maxHeard is what is taken until then.
	maxText  = 1 << 20
	maxHeard = maxText + 64<<10
	// lead is between the decision to start and the zero of all stamps.
	lead = 50 * time.Millisecond
)

// Options say what to send, and where.
type Options struct {
	ID      string
	BaseURL string // without /v1
	API     string // loadgen.APIChat or loadgen.APICompletions
	Headers http.Header
	// Models take turns; ModelSource says where their names come from.
	Models      []string
	ModelSource string
	// Prompts take turns. With none, each request has one of its own.
	Prompts   []string
	MaxTokens int
	// Rate, in requests per second, and Duration make a timed probe: gaps are
	// exponential, drawn from Seed. Without them one request is sent.
	Rate     float64
	Duration time.Duration
	Seed     uint64

	RequestTimeout time.Duration
	// Emulated says that the service is the emulated engine.
	Emulated bool
	// Hide cuts secrets out of a text that came from the service; nil for none.
	Hide func(string) string
	// Progress takes a line about how far it is, about once a second; nil for none.
	Progress func(done, total int64, text string)
}

// Timed says whether the probe sends at random times.
func (o Options) Timed() bool { return o.Duration > 0 }

func (o Options) hide(s string) string {
	if o.Hide == nil {
		return s
	}
	return o.Hide(s)
}

// Plan is a probe that is ready to be sent.
type Plan struct {
	opts     Options
	requests []loadgen.Request
	header   schemas.Schedule
	repeated bool
}

// NewPlan decides every request before the first is sent.
func NewPlan(o Options) (*Plan, error) {
	if len(o.Models) == 0 {
		return nil, errors.New("no model to ask")
	}
	at, err := arrivals(o)
	if err != nil {
		return nil, err
	}
	p := &Plan{opts: o, repeated: len(o.Prompts) > 0 && len(at) > len(o.Prompts)}
	for i, t := range at {
		r := loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{Index: i, ID: strconv.Itoa(i), AtNs: t, Model: o.Models[i%len(o.Models)], OutputTokens: o.MaxTokens}}
		r.Text = prompt(o, i)
		r.PromptDigest = loadgen.PromptDigest(o.API, o.Seed, r)
		p.requests = append(p.requests, r)
	}
	p.header = schemas.Schedule{
		Schema: schemas.ScheduleV1, Arrival: schemas.ModeSequential, Mode: schemas.ModeSequential, Speed: 1, ContentSeed: o.Seed, WorkloadForm: "prompts",
		Requests: len(at), Seeds: &schemas.Seeds{Arrival: o.Seed, Assignment: o.Seed, Content: o.Seed, Order: o.Seed},
	}
	if o.Timed() {
		start := fmt.Sprintf("%016x", workload.SubSeed(o.Seed, "arrival/"+poisson))
		p.header.Streams = []schemas.SeedStream{{Seed: "arrival", Purpose: "arrival/" + poisson, Start: start}}
		p.header.Arrival, p.header.Mode, p.header.Process = poisson, schemas.ModeOpen, &schemas.ArrivalProcess{Process: poisson, Rate: o.Rate}
	}
	p.header.RequestsDigest, err = digest(p.requests)
	return p, err
}

const poisson = "poisson"

// arrivals are the times of the requests, in ns.
func arrivals(o Options) ([]int64, error) {
	if !o.Timed() {
		return []int64{0}, nil
	}
	if expected := o.Rate * o.Duration.Seconds(); expected > MaxRequests/2 {
		return nil, fmt.Errorf("about %.0f requests are more than a probe sends; measure with `assay run`", expected)
	}
	return workload.Arrivals(schemas.ArrivalProcess{Process: poisson, Rate: o.Rate}, 0, o.Duration, o.Seed)
}

// prompt is the text of request i. Without given ones no two begin alike, so that no
// answer comes from a prefix cache.
func prompt(o Options, i int) string {
	if n := len(o.Prompts); n > 0 {
		return o.Prompts[i%n]
	}
	if !o.Timed() {
		return "Explain in a few sentences how a large language model generates text."
	}
	return fmt.Sprintf("Question %d: explain in a few sentences how a large language model generates text.", i+1)
}

// Send sends everything and returns when the last request has its record, which log
// takes, or when ctx ends; the summary is there in both cases. The error is what kept
// the load or the log from going on, not what became of a request.
func (p *Plan) Send(ctx context.Context, log func(schemas.RequestRecord) error) (schemas.Probe, error) {
	o := p.opts
	heard := &ear{opts: o, heads: map[int]int64{}, texts: map[int]*strings.Builder{}, cut: map[int]bool{}}
	watch := loadgen.NewWatch()
	anchor := time.Now().Add(lead)
	opts := loadgen.Options{
		BaseURL: o.BaseURL, API: o.API, ContentSeed: o.Seed, Headers: o.Headers, RequestTimeout: o.RequestTimeout, IdleTimeout: o.RequestTimeout,
		Tap: &loadgen.Tap{Headers: heard.head, Text: heard.text}, Watch: watch, Anchor: anchor, Requests: p.requests,
	}
	var meter loadgen.Meter
	if o.Timed() {
		meter.Until = o.Duration
	}
	stop := p.follow(&opts, &meter, anchor)
	var recs []schemas.RequestRecord
	err := loadgen.Run(ctx, opts, func(r schemas.RequestRecord) error {
		meter.Add(&r)
		r.Error, r.FinishReason = o.hide(r.Error), o.hide(r.FinishReason)
		recs = append(recs, r)
		return log(r)
	})
	stop()
	doc, ferr := p.summary(anchor, recs, heard, watch)
	return doc, errors.Join(err, ferr)
}

// follow tells the progress about once a second until stop is called.
func (p *Plan) follow(opts *loadgen.Options, meter *loadgen.Meter, anchor time.Time) (stop func()) {
	if p.opts.Progress == nil {
		return func() {}
	}
	opts.Progress = func(now loadgen.Progress) { meter.Set(anchor, time.Now(), now) }
	quit, ended := make(chan struct{}), make(chan struct{})
	tick := time.NewTicker(time.Second)
	go func() {
		defer close(ended)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				c := meter.Counts()
				p.opts.Progress(int64(c.Done), int64(c.Total), meter.Text(time.Now()))
			}
		}
	}()
	return func() { close(quit); <-ended }
}

// summary folds what came.
func (p *Plan) summary(anchor time.Time, recs []schemas.RequestRecord, heard *ear, watch *loadgen.Watch) (schemas.Probe, error) {
	o := p.opts
	doc := schemas.Probe{
		Schema: schemas.ProbeV1, ID: o.ID, Mode: "single", StartedAt: anchor.UTC().Round(0), URL: o.BaseURL, API: o.API, Models: o.Models, ModelSource: o.ModelSource,
		MaxTokens: o.MaxTokens, Seed: o.Seed, Repeated: p.repeated, RequestsDigest: p.header.RequestsDigest, Requests: []schemas.ProbeRequest{},
	}
	if o.Timed() {
		doc.Mode, doc.RatePerS, doc.DurationS = "timed", o.Rate, o.Duration.Seconds()
	}
	var said schemas.ClientVerdict
	var tally loadgen.StampTally
	for i := range recs {
		tally.Add(&recs[i])
		doc.Requests = append(doc.Requests, answer(&recs[i], p.requests[recs[i].Index].Text, heard))
	}
	slices.SortFunc(doc.Requests, func(a, b schemas.ProbeRequest) int { return a.Index - b.Index })
	watch.Stop(&said)
	said.Uncalibrated = "a probe does not calibrate"
	tally.Judge(&said)
	course, err := report.Look(report.Records(recs), report.LookOptions{})
	if err != nil {
		return doc, err
	}
	doc.Result, err = report.Fold(report.Records(recs), report.FoldOptions{OpenLoop: o.Timed(), Emulated: o.Emulated, Expected: len(p.requests), Subject: "probe", Course: &course})
	doc.Result.Client = &said
	return doc, err
}

// ear keeps what records do not. It is told from several goroutines.
type ear struct {
	opts  Options
	mu    sync.Mutex
	heads map[int]int64
	texts map[int]*strings.Builder
	cut   map[int]bool
}

func (e *ear) head(index int, atNs int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heads[index] = atNs
}

func (e *ear) text(index int, piece []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.texts[index]
	if b == nil {
		b = &strings.Builder{}
		e.texts[index] = b
	}
	if n := maxHeard - b.Len(); len(piece) > n {
		piece, e.cut[index] = piece[:n], true
	}
	b.Write(piece)
}
