package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"assay/internal/durable"
	"assay/internal/loadgen"
	"assay/internal/observe"
	"assay/internal/report"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs, and the files in them.
const (
	OutputRequests = "requests"
	OutputSummary  = "summary"
	OutputAnswers  = "answers"
	RequestsFile   = "requests.jsonl.zst"
	SummaryFile    = "summary.json"
	TextFile       = "summary.txt"
	AnswersFile    = "answers.jsonl"
)

// Kind returns the kind.
func Kind() pipeline.Kind {
	return pipeline.Kind{
		Name: "load", Version: 1, Measured: true,
		Seed:    func(map[string]any) pipeline.SeedUse { return pipeline.SeedRepetition },
		Outputs: func(map[string]any) []string { return []string{OutputRequests, OutputSummary, OutputAnswers} },
		Run:     run,
	}
}

// load is one execution.
type load struct {
	task     *pipeline.Task
	set      schemas.Settings
	specs    []spec
	undeploy []string
	talk     *talk
	client   *loadgen.Client
	log      *report.RecordWriter
	sum      schemas.Load

	index     int
	last      string            // model asked last
	lastOn    map[string]string // likewise, by node
	evictions *float64          // counted before
	prompts   map[string]int    // model: length of a prompt by the service, where it differs
	surprises map[string]int    // what order and counter disagree about
}

func run(ctx context.Context, task *pipeline.Task) error {
	if task.Service == nil {
		return errors.New("load needs a service: name one with service = \"...\"")
	}
	set := schemas.Settings(task.Config)
	list, err := specs(task, set)
	if err != nil {
		return err
	}
	l := &load{task: task, set: set, specs: list, undeploy: undeploys(set, list), lastOn: map[string]string{}, prompts: map[string]int{}, surprises: map[string]int{}}
	if len(l.specs) == 0 && len(l.undeploy) == 0 {
		return errors.New("there is no model to deploy and none to undeploy: name some with models or undeploy")
	}
	l.sum = schemas.Load{Schema: schemas.LoadV1, Emulated: task.Service.Emulated, InputTokens: set.Int("input_tokens"), OutputTokens: set.Int("output_tokens"),
		Models: []schemas.LoadModel{}, Evictions: []schemas.LoadEviction{}, Undeployed: []schemas.LoadUndeploy{}}
	closeAll, err := l.open()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	unwatch := task.Service.Watch(stop)
	err = l.all(ctx)
	unwatch()
	stop(nil)
	l.tell()
	// What was done is kept when the rest could not be.
	err = errors.Join(err, closeAll())
	if l.sum.Via == "" {
		return err // nothing was asked of the service
	}
	return errors.Join(err, l.write())
}

// open makes the client and the files of the outputs.
func (l *load) open() (closeAll func() error, err error) {
	// Prompts of a stream of their own: what is measured later must not be in a cache.
	content := workload.SubSeed(l.task.Seed, "load/content")
	limit := l.set.Duration("request_timeout")
	l.client, err = loadgen.New(loadgen.Options{BaseURL: l.task.Service.URL, API: l.set.Text("api"), ContentSeed: content, Held: true, MinTokens: l.task.Service.Asking.MinTokens, Headers: l.task.Service.Asking.Key.Header(),
		RequestTimeout: limit, IdleTimeout: limit})
	if err != nil {
		return nil, err
	}
	requests, err := l.file(OutputRequests, RequestsFile)
	if err != nil {
		l.client.Close()
		return nil, err
	}
	if l.log, err = report.NewRecordWriter(requests); err != nil {
		l.client.Close()
		return nil, errors.Join(err, requests.Close())
	}
	answers, err := l.file(OutputAnswers, AnswersFile)
	if err != nil {
		l.client.Close()
		return nil, errors.Join(err, l.log.Close())
	}
	l.talk = newTalk(l.task.Service.URL, l.task.Service.Asking.Key.Header(), l.task.Hide, func(k kept) error {
		b, err := json.Marshal(k)
		if err == nil {
			err = answers.AppendLine(append(b, '\n'))
		}
		if err != nil {
			return &pipeline.InfraError{Op: "write the service's answers", Err: err}
		}
		return nil
	})
	for _, s := range l.specs {
		if s.path != "" {
			l.talk.paths = append(l.talk.paths, s.path)
		}
	}
	return func() error {
		l.client.Close()
		l.talk.client.CloseIdleConnections()
		return errors.Join(l.log.Close(), answers.Sync(), answers.Close())
	}, nil
}

func (l *load) file(output, name string) (*durable.AppendFile, error) {
	path, err := l.task.OutputFile(output, name)
	if err != nil {
		return nil, err
	}
	f, err := durable.OpenAppend(path)
	if err != nil {
		return nil, &pipeline.InfraError{Op: "make " + name, Err: err}
	}
	return f, nil
}

// all does the work: every model in turn, switches between them, the end.
func (l *load) all(ctx context.Context) error {
	if err := l.choose(ctx); err != nil {
		return err
	}
	err := l.models(ctx)
	if err == nil {
		err = l.switches(ctx)
	}
	if ctx.Err() == nil {
		// Also after a failure: a service that goes on must not keep what this stage brought.
		err = errors.Join(err, l.undeployAll(ctx), l.end(ctx))
	}
	if l.task.Service.Relist != nil && ctx.Err() == nil {
		if listErr := l.task.Service.Relist(ctx); listErr != nil && err == nil {
			err = fmt.Errorf("service %s: %w", l.task.Service.Name, listErr)
		}
	}
	return err
}

// models brings every model up and asks it twice.
func (l *load) models(ctx context.Context) error {
	for _, s := range l.specs {
		b, err := l.bring(ctx, s)
		l.sum.Models = append(l.sum.Models, b.out)
		if err != nil {
			return err
		}
		m := &l.sum.Models[len(l.sum.Models)-1]
		for _, o := range []order{orderFirst, orderRepeat} {
			if err := l.ask(ctx, m, o); err != nil {
				return err
			}
		}
		fmt.Fprintf(l.task.Log, "model %s is ready after %s ms\n", m.Model, number(m.ReadyMs))
	}
	if !l.sum.Snapshot || len(l.specs) == 0 {
		return nil
	}
	s, _, err := l.talk.look(ctx, "snapshot loaded")
	if err != nil {
		return fmt.Errorf("look at what was loaded: %w", err)
	}
	return l.checkReady(s)
}

// switches goes through all models, so that each follows another.
func (l *load) switches(ctx context.Context) error {
	if len(l.specs) < 2 {
		return nil
	}
	for range l.set.Int("switches") {
		for i := range l.sum.Models {
			if err := l.ask(ctx, &l.sum.Models[i], orderSwitch); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask sends a model's exact requests and puts what came of them to its replicas.
func (l *load) ask(ctx context.Context, m *schemas.LoadModel, o order) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("model %s: %w", m.Model, err)
	}
	var nodes []string
	for _, r := range m.Replicas {
		if r.State == observe.ReplicaReady {
			nodes = append(nodes, r.Node)
		}
	}
	done, on, err := l.pass(ctx, m.Model, nodes, o)
	for i := range done {
		r := replicaOf(m, on[i])
		switch o {
		case orderFirst:
			r.FirstUse = &done[i]
		case orderRepeat:
			r.Repeat = &done[i]
		default:
			r.Switches = append(r.Switches, done[i])
		}
	}
	return err
}

// replicaOf is the row of a node; what cannot be told gets a row of its own.
func replicaOf(m *schemas.LoadModel, node string) *schemas.LoadReplica {
	for i := range m.Replicas {
		if m.Replicas[i].Node == node {
			return &m.Replicas[i]
		}
	}
	m.Replicas = append(m.Replicas, schemas.LoadReplica{Node: node, Unknown: "the service does not tell which node answered", Switches: []schemas.LoadRequest{}})
	return &m.Replicas[len(m.Replicas)-1]
}

// expected is how many requests there will be at least.
func (l *load) expected() int64 {
	n := 0
	for _, s := range l.specs {
		n += 2 * s.replicas
		if len(l.specs) > 1 {
			n += l.set.Int("switches") * s.replicas
		}
	}
	return int64(max(n, l.index))
}

// end takes the last snapshot and holds the service's accounts against each other.
func (l *load) end(ctx context.Context) error {
	if !l.sum.Snapshot {
		return nil
	}
	s, _, err := l.talk.look(ctx, "snapshot after")
	if err != nil {
		return fmt.Errorf("look at the end: %w", err)
	}
	l.account(s)
	return nil
}

// write leaves the summary.
func (l *load) write() error {
	for i := range l.sum.Models {
		for k := range l.sum.Models[i].Replicas {
			costs(&l.sum.Models[i].Replicas[k])
		}
	}
	b, err := schemas.Encode(l.sum)
	if err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	if err := schemas.Validate("load", b); err != nil {
		return fmt.Errorf("summary: %w", err)
	}
	dir, err := l.task.OutputDir(OutputSummary)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{SummaryFile: append(b, '\n'), TextFile: []byte(summaryText(l.sum))} {
		if err := durable.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return &pipeline.InfraError{Op: "write the summary", Err: err}
		}
	}
	return nil
}

// costs fills in the differences between sorts of requests.
func costs(r *schemas.LoadReplica) {
	ok := func(q *schemas.LoadRequest) bool {
		return q != nil && q.Outcome == schemas.OutcomeOK && q.TTFTMs != nil && q.E2EMs != nil
	}
	if !ok(r.Repeat) || r.Repeat.Met != schemas.LoadResident {
		return
	}
	if ok(r.FirstUse) && r.FirstUse.Met == schemas.LoadCPUCacheHit {
		r.CPUCacheHit = &schemas.LoadCost{N: 1, TTFTMs: *r.FirstUse.TTFTMs - *r.Repeat.TTFTMs, E2EMs: *r.FirstUse.E2EMs - *r.Repeat.E2EMs}
	}
	c := schemas.LoadCost{}
	for _, q := range r.Switches {
		if ok(&q) && q.Met == schemas.LoadSwitch {
			c.N++
			c.TTFTMs, c.E2EMs = c.TTFTMs+*q.TTFTMs-*r.Repeat.TTFTMs, c.E2EMs+*q.E2EMs-*r.Repeat.E2EMs
		}
	}
	if c.N > 0 {
		c.TTFTMs, c.E2EMs = c.TTFTMs/float64(c.N), c.E2EMs/float64(c.N)
		r.GPUSwitch = &c
	}
}

// tell reports what is no failure but has to be known.
func (l *load) tell() {
	for _, m := range l.sum.Models {
		for _, r := range m.Replicas {
			if r.State == observe.ReplicaReady && r.FirstUse == nil && slices.ContainsFunc(m.Replicas, func(o schemas.LoadReplica) bool { return o.FirstUse != nil }) {
				l.task.Report(schemas.Finding{ID: "load.replica-unproven", Severity: schemas.SeverityWarning, Subject: "model " + m.Model,
					Message: fmt.Sprintf("its replica on %s is ready, but no request is known to have been answered there: the service chooses", r.Node),
					Remedy:  "deploy it on one node at a time (nodes), or ask for its placement in the service's log"})
			}
		}
	}
	for _, model := range sortedKeys(l.prompts) {
		l.task.Report(schemas.Finding{ID: "load.prompt-length", Severity: schemas.SeverityWarning, Subject: "model " + model,
			Message: fmt.Sprintf("the service counts %d tokens in a prompt of %d token ids: it adds some", l.prompts[model], l.sum.InputTokens),
			Remedy:  "leave room for them in limits and buckets"})
	}
	for _, what := range sortedKeys(l.surprises) {
		l.task.Report(schemas.Finding{ID: "load.counter-disagrees", Severity: schemas.SeverityInfo, Subject: "service " + l.task.Service.Name,
			Message: fmt.Sprintf("%s (%d requests); the counter was believed", what, l.surprises[what]), Remedy: "with several engines a node may hold several models"})
	}
}
