package warmup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"assay/internal/durable"
	"assay/internal/loadgen"
	"assay/internal/metrics"
	"assay/internal/report"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs, and the files in them.
const (
	OutputRequests = "requests"
	OutputSummary  = "summary"
	RequestsFile   = "requests.jsonl.zst"
	SummaryFile    = "summary.json"
)

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "warmup", Version: 1,
		Seed:    func(map[string]any) pipeline.SeedUse { return pipeline.SeedRepetition },
		Outputs: func(map[string]any) []string { return []string{OutputRequests, OutputSummary} },
		Run:     run,
	}
}

// Summary is the summary output. Its requests never enter a result: the phase
// says what they are.
type Summary struct {
	Phase    string         `json:"phase"` // "warmup"
	Emulated bool           `json:"emulated"`
	Models   []ModelSummary `json:"models"`
}

// ModelSummary is the warm-up of one model. Times are in milliseconds.
type ModelSummary struct {
	Model       string   `json:"model"`
	FirstTTFTMs *float64 `json:"first_ttft_ms,omitempty"` // of the first request, whatever it had to load or compile
	FirstE2EMs  *float64 `json:"first_e2e_ms,omitempty"`
	LastE2EMs   *float64 `json:"last_e2e_ms,omitempty"`
	Sent        int      `json:"sent"`
	Rule        string   `json:"rule"`
	Held        bool     `json:"held"`
	// LastSpreadPercent is the spread of E2E over the last n requests, with a stable rule.
	LastSpreadPercent *float64 `json:"last_spread_percent,omitempty"`
}

// warmup is one execution.
type warmup struct {
	task   *pipeline.Task
	set    schemas.Settings
	client *loadgen.Client
	log    *report.RecordWriter
	rule   rule
	models []string
	index  int
}

func run(ctx context.Context, task *pipeline.Task) error {
	if task.Service == nil {
		return errors.New("warmup needs a service: name one with service = \"...\"")
	}
	set := schemas.Settings(task.Config)
	w := &warmup{task: task, set: set, rule: ruleOf(set), models: set.List("models")}
	if len(w.models) == 0 {
		w.models = slices.Sorted(slices.Values(task.Service.Models))
	}
	if len(w.models) == 0 {
		return fmt.Errorf("service %s lists no models: name them with models = [...]", task.Service.Name)
	}
	// Prompts of a stream of their own: what is measured later must not be in a cache.
	content := workload.SubSeed(task.Seed, "warmup/content")
	client, err := loadgen.New(loadgen.Options{BaseURL: task.Service.URL, API: set.Text("api"), ContentSeed: content, Held: true, MinTokens: task.Service.Asking.MinTokens, Headers: task.Service.Asking.Key.Header(),
		RequestTimeout: set.Duration("request_timeout"), IdleTimeout: set.Duration("request_timeout")})
	if err != nil {
		return err
	}
	defer client.Close()
	w.client = client
	path, err := task.OutputFile(OutputRequests, RequestsFile)
	if err != nil {
		return err
	}
	file, err := durable.OpenAppend(path)
	if err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	if w.log, err = report.NewRecordWriter(file); err != nil {
		return errors.Join(err, file.Close())
	}
	sum, err := w.all(ctx)
	// The summary of what was done is kept when the rest could not be.
	return errors.Join(err, w.log.Close(), w.write(sum))
}

func (w *warmup) all(ctx context.Context) (Summary, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer w.task.Service.Watch(stop)()
	sum := Summary{Phase: "warmup", Emulated: w.task.Service.Emulated, Models: []ModelSummary{}}
	for _, m := range w.models {
		ms, err := w.model(ctx, m)
		sum.Models = append(sum.Models, ms)
		if err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func (w *warmup) model(ctx context.Context, model string) (ModelSummary, error) {
	ms := ModelSummary{Model: model, Rule: w.rule.String()}
	var e2e []float64
	for ms.Sent < w.rule.count && !ms.Held {
		if err := context.Cause(ctx); err != nil {
			return ms, fmt.Errorf("model %s: %w", model, err)
		}
		req := schemas.ScheduledRequest{Index: w.index, ID: fmt.Sprintf("warmup-%d", w.index), Model: model, InputTokens: w.set.Int("input_tokens"), OutputTokens: w.set.Int("output_tokens")}
		if w.task.Service.Asking.TextPrompts {
			req.PromptWords = req.InputTokens
		}
		rec := w.client.Do(ctx, loadgen.Request{ScheduledRequest: req})
		w.index++
		ms.Sent++
		if w.task.Hide != nil {
			rec.Error, rec.FinishReason = w.task.Hide(rec.Error), w.task.Hide(rec.FinishReason) // a service may answer with what it was sent
		}
		if err := errors.Join(w.log.Write(rec), w.log.Flush()); err != nil {
			return ms, &pipeline.InfraError{Op: "write the request log", Err: err}
		}
		v, ok := metrics.E2EMs(&rec)
		if !ok {
			return ms, w.failed(ctx, rec, ms.Sent)
		}
		if ms.Sent == 1 {
			ms.FirstE2EMs = &v
			if t, ok := metrics.TTFTMs(&rec); ok {
				ms.FirstTTFTMs = &t
			}
		}
		ms.LastE2EMs = &v
		e2e = append(e2e, v)
		ms.Held, ms.LastSpreadPercent = w.rule.holds(e2e)
		w.task.Progress(int64(w.index), int64(len(w.models)*w.rule.count), model)
	}
	fmt.Fprintf(w.task.Log, "model %s: %d requests, first E2E %.3f ms, last %.3f ms, %s: %s\n", model, ms.Sent, *ms.FirstE2EMs, *ms.LastE2EMs, ms.Rule, heldText(ms.Held))
	if !ms.Held {
		w.task.Report(schemas.Finding{ID: "warmup.unstable", Severity: schemas.SeverityWarning, Subject: "model " + model,
			Message: fmt.Sprintf("latency is not stable after %d requests (%s; last spread %s)", ms.Sent, ms.Rule, percent(ms.LastSpreadPercent)),
			Remedy:  "raise count, or within_percent"})
	}
	return ms, nil
}

func (w *warmup) failed(ctx context.Context, rec schemas.RequestRecord, n int) error {
	err := fmt.Errorf("model %s: request %d ended with %s: %s", rec.Model, n, rec.Outcome, rec.Error)
	if w.task.Service.Dead != nil {
		if why := w.task.Service.Dead(); why != "" {
			return fmt.Errorf("service %s died during warm-up: %s: %w", w.task.Service.Name, why, err)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

func (w *warmup) write(sum Summary) error {
	b, err := schemas.Encode(sum)
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	path, err := w.task.OutputFile(OutputSummary, SummaryFile)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	return nil
}

func heldText(held bool) string {
	if held {
		return "holds"
	}
	return "does not hold"
}

func percent(p *float64) string {
	if p == nil {
		return "unknown: too few requests"
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2f", *p), ".00") + " %"
}
