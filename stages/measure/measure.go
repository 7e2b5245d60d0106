package measure

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"assay/internal/durable"
	"assay/internal/loadgen"
	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs, and the files in them.
const (
	OutputSchedule = "schedule"
	OutputRequests = "requests"
	OutputResult   = "result"
	OutputObserved = "observed"

	ScheduleFile   = "schedule.jsonl"
	RequestsFile   = "requests.jsonl.zst"
	ResultFile     = "result.json"
	ConditionsFile = "conditions.json"
)

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "measure", Version: 1, Measured: true,
		Seed: seed,
		Outputs: func(map[string]any) []string {
			return []string{OutputSchedule, OutputRequests, OutputResult, OutputObserved}
		},
		Run: run,
	}
}

func seed(config map[string]any) pipeline.SeedUse {
	if v, ok := config["per_repetition"].(bool); ok && !v {
		return pipeline.SeedExperiment
	}
	return pipeline.SeedRepetition
}

func run(ctx context.Context, task *pipeline.Task) error {
	if task.Service == nil {
		return errors.New("measure needs a service: name one with service = \"...\"")
	}
	set := schemas.Settings(task.Config)
	plan, err := makePlan(ctx, task, set)
	if err != nil {
		return err
	}
	if err := writeSchedule(task, plan); err != nil {
		return err
	}
	if plan.header.Reading != nil {
		fmt.Fprintf(task.Log, "%s\n", readingText(*plan.header.Reading))
	}
	log, err := openLog(task)
	if err != nil {
		return err
	}
	seen, err := startObserving(ctx, task, set)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	c := prepare(ctx, task, set, plan)
	c.observed = seen
	opts := clientOptions(task, set, plan)
	opts.Pool, opts.Watch = c.pool, c.watch
	seen.recorder.Begin(opts.Anchor)
	sent, logged := send(ctx, task, opts, log, &c.issued)
	c.sent()
	seen.end(ctx)
	if logged != nil {
		return &pipeline.InfraError{Op: "write the request log", Err: logged}
	}
	// What was recorded is folded and kept, however the sending ended.
	res, err := fold(ctx, task, set, plan, opts.Anchor, c)
	if err != nil {
		return errors.Join(sent, err)
	}
	return errors.Join(verdict(ctx, task, set, res, sent), seen.err)
}

func readingText(r schemas.Reading) string {
	text := fmt.Sprintf("%s; %d of %d rows kept", r.Verdict, r.Kept, r.Rows)
	for _, c := range []struct {
		n    int
		what string
	}{{r.Failed, "without a usable request"}, {r.Dropped, "over a limit, dropped"}, {r.Clipped, "clipped"}} {
		if c.n > 0 {
			text += fmt.Sprintf(", %d %s", c.n, c.what)
		}
	}
	return text
}

func clientOptions(task *pipeline.Task, set schemas.Settings, plan plan) loadgen.Options {
	return loadgen.Options{
		BaseURL: task.Service.URL, API: set.Text("api"), ContentSeed: plan.header.ContentSeed, Held: set.Bool("ignore_eos"), MinTokens: task.Service.Asking.MinTokens, Headers: task.Service.Asking.Key.Header(),
		RequestTimeout: set.Duration("request_timeout"), IdleTimeout: set.Duration("idle_timeout"), MaxConnections: max(set.Int("max_connections"), plan.header.Concurrency),
		Concurrency: plan.header.Concurrency, MaxInFlight: plan.header.MaxInFlight, Until: plan.until(), CutAtEnd: plan.header.AtEnd == atEndCut,
		ServiceDone: task.Service.Done, Requests: plan.requests, Anchor: time.Now().Add(anchorLead),
	}
}

// anchorLead is between the decision to start and the first arrival, for the
// first bodies to be built.
const anchorLead = 100 * time.Millisecond

// verdict says whether the stage passed; what it published stays either way.
func verdict(ctx context.Context, task *pipeline.Task, set schemas.Settings, res schemas.Result, sent error) error {
	for _, f := range res.Findings {
		task.Report(f)
	}
	counts := outcomeText(res.Counts)
	fmt.Fprintf(task.Log, "%d requests: %s\n", res.Counts.Issued, counts)
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("interrupted: %w (%s)", err, counts)
	}
	if sent != nil {
		return fmt.Errorf("send requests: %w (%s)", sent, counts)
	}
	if why := dead(task.Service); why != "" {
		return fmt.Errorf("service %s died while it was measured: %s (%s)", task.Service.Name, why, counts)
	}
	share := 0.0
	if res.Counts.Issued > 0 {
		if res.Counts.OK == 0 {
			return fmt.Errorf("not one of %d requests was answered properly (%s): see the records' errors", res.Counts.Issued, counts)
		}
		failed := res.Counts.Issued - res.Counts.OK
		if cut := res.Values["cut_at_end"].Value; cut != nil {
			failed -= int(*cut) // by rule, not by fault
		}
		share = float64(failed) / float64(res.Counts.Issued)
	}
	if limit := set.Float("allow_errors"); share > limit {
		return fmt.Errorf("%s of the requests failed, allow_errors is %s (%s): see the records' errors", schemas.Rounded(share, 4), schemas.Decimal(limit), counts)
	}
	if err := lengthsKept(set, res); err != nil {
		return err
	}
	return believed(set, res)
}

func dead(s *pipeline.ServiceView) string {
	if s.Dead != nil {
		if why := s.Dead(); why != "" {
			return why
		}
	}
	select {
	case <-s.Done:
		return "it ended"
	default:
		return ""
	}
}

func outcomeText(c schemas.Counts) string {
	text := ""
	for _, o := range schemas.Outcomes {
		if n := c.Outcomes[o]; n > 0 {
			if text != "" {
				text += ", "
			}
			text += fmt.Sprintf("%s %d", o, n)
		}
	}
	if text == "" {
		return "no request"
	}
	return text
}

func openLog(task *pipeline.Task) (*report.RecordWriter, error) {
	path, err := task.OutputFile(OutputRequests, RequestsFile)
	if err != nil {
		return nil, err
	}
	f, err := durable.OpenAppend(path)
	if err != nil {
		return nil, &pipeline.InfraError{Op: "make the request log", Err: err}
	}
	w, err := report.NewRecordWriter(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// send runs the load. The log is flushed every second and closed at the end; what
// is wrong with it is told apart from what is wrong with the load. issued becomes
// the number of records.
func send(ctx context.Context, task *pipeline.Task, opts loadgen.Options, log *report.RecordWriter, issued *int) (sent, logged error) {
	state := newProgress(opts)
	opts.Progress = state.set
	tick := time.NewTicker(time.Second)
	stop, flushed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(flushed)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = log.Flush() // its error is sticky: the next Write and Close return it
				state.tell(task)
			}
		}
	}()
	sent = loadgen.Run(ctx, opts, func(rec schemas.RequestRecord) error {
		*issued++
		state.add(&rec)
		if task.Hide != nil {
			rec.Error, rec.FinishReason = task.Hide(rec.Error), task.Hide(rec.FinishReason) // a service may answer with what it was sent
		}
		return log.Write(rec)
	})
	close(stop)
	<-flushed
	state.tell(task)
	return sent, log.Close()
}

// fold reads the log back, so that the result is one over what is archived.
func fold(ctx context.Context, task *pipeline.Task, set schemas.Settings, plan plan, anchor time.Time, c *client) (schemas.Result, error) {
	path := filepath.Join(task.Dir, "outputs", OutputRequests, RequestsFile)
	course, err := look(path, set)
	if err != nil {
		return schemas.Result{}, err
	}
	rd, err := report.OpenRecords(path)
	if err != nil {
		return schemas.Result{}, err
	}
	defer rd.Close()
	seen := newLengths()
	res, err := report.Fold(c.observe(seen.watch(rd.All())), report.FoldOptions{
		SLO: slo(set), Speed: set.Float("speed"), OpenLoop: plan.header.Mode == schemas.ModeOpen, Emulated: task.Service.Emulated, Expected: plan.expected(c.issued), Subject: "stage " + task.Node.ID,
		Course: &course, TimeOver: plan.until() > 0, FirstUse: plan.header.FirstUse,
	})
	if err != nil {
		return res, err
	}
	plan.exhausted(task, &res)
	res.Findings = append(res.Findings, seen.findings(task, set)...)
	c.judge(ctx, task, set, &res)
	if err := c.observed.into(&res); err != nil {
		return res, err
	}
	countSwitches(task, &res)
	return res, writeResult(task, res, conditions(task, set, plan, res, seen, anchor))
}

// look reads the log a first time, for its windows.
func look(path string, set schemas.Settings) (report.Course, error) {
	rd, err := report.OpenRecords(path)
	if err != nil {
		return report.Course{}, err
	}
	defer rd.Close()
	return report.Look(rd.All(), report.LookOptions{WarmupNs: int64(set.Duration("warmup")), DrainNs: int64(set.Duration("drain"))})
}

func slo(set schemas.Settings) *schemas.SLO {
	t := set.Table("slo")
	if t == nil {
		return nil
	}
	return &schemas.SLO{TTFTMs: float64(t.Duration("ttft")) / 1e6, TPOTMs: float64(t.Duration("tpot")) / 1e6}
}

func writeResult(task *pipeline.Task, res schemas.Result, conds []schemas.Condition) error {
	b, err := schemas.Encode(res)
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if err := schemas.Validate("result", b); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	c, err := schemas.Encode(conds)
	if err != nil {
		return fmt.Errorf("conditions: %w", err)
	}
	dir, err := task.OutputDir(OutputResult)
	if err != nil {
		return err
	}
	if err := writeSwitches(dir, task.Node.ID, res); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, ConditionsFile), append(c, '\n'), 0o644); err != nil {
		return &pipeline.InfraError{Op: "write conditions", Err: err}
	}
	if err := durable.WriteFile(filepath.Join(dir, ResultFile), append(b, '\n'), 0o644); err != nil {
		return &pipeline.InfraError{Op: "write the result", Err: err}
	}
	return nil
}
