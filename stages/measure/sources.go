package measure

import (
	"fmt"
	"strconv"
	"time"

	"assay/internal/loadgen"
	"assay/internal/workload"
	"assay/schemas"
)

// readOptions say how to read a file of requests.
func (p *plan) readOptions(set schemas.Settings, path string) workload.Options {
	from, to, _ := window(set) // cut tells what is wrong with it
	return workload.Options{
		From: from, To: to,
		Name: baseName(path), Form: workload.Form(set.Text("workload_form")), Unit: set.Text("timestamp_unit"), Models: p.models, Seed: p.header.Seeds.Assignment,
		Turns: set.Int("turns"), MaxInput: set.Int("max_input"), MaxOutput: set.Int("max_output"), MaxTotal: set.Int("max_total"), Over: set.Text("over_length"),
	}
}

// read takes a file and notes how it was read.
func (p *plan) read(set schemas.Settings, path string) (workload.Workload, error) {
	w, err := workload.ReadFile(path, p.readOptions(set, path))
	if err != nil {
		return w, err
	}
	h := &p.header
	h.WorkloadDigest, h.WorkloadForm = w.Digest, string(w.Form)
	h.Reading = &w.Reading
	return w, nil
}

// fromWorkload replays a file of arrivals; in closed loop, its order and lengths.
func (p *plan) fromWorkload(set schemas.Settings) error {
	p.header.Arrival = "trace"
	w, err := p.read(set, set.Text("workload"))
	if err != nil {
		return err
	}
	if !w.Form.Timed() {
		return fmt.Errorf("%s has no times (form %s): give it as prompts, with arrival, concurrency or mode", baseName(set.Text("workload")), w.Form)
	}
	// Models are assigned before the window is cut: two windows of one workload
	// send a model's requests to the same model.
	w, p.mapping, err = w.AssignModels(p.models, false)
	if err != nil {
		return err
	}
	if w, err = cut(w, set); err != nil {
		return err
	}
	if n := set.Int("requests"); n > 0 && n < len(w.Requests) {
		w.Requests = w.Requests[:n]
	}
	for _, r := range w.Requests {
		p.add(r.ID, r.AtNs, r.Model, r.InputTokens, r.OutputTokens, r.Prompt)
	}
	return nil
}

func (p *plan) add(id string, at int64, model string, in, out int, prompt workload.Prompt) {
	p.requests = append(p.requests, loadgen.Request{
		ScheduledRequest: schemas.ScheduledRequest{ID: id, AtNs: at, Model: model, InputTokens: in, OutputTokens: out}, Prompt: prompt,
	})
}

// fromPrompts sends given texts, each at most once, or conversations turn by turn.
func (p *plan) fromPrompts(set schemas.Settings) error {
	w, err := p.read(set, set.Text("prompts"))
	if err != nil {
		return err
	}
	if w.Form.Timed() {
		return fmt.Errorf("%s has times (form %s): give it as workload", baseName(set.Text("prompts")), w.Form)
	}
	if err := checkTurns(set, w.Form); err != nil {
		return err
	}
	list := talks(w.Requests)
	if set.Bool("shuffle") {
		r := workload.NewRand(p.header.Seeds.Order, "order/prompts")
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	at, err := p.arrivals(set, len(list))
	if err != nil {
		return err
	}
	if len(at) > len(list) {
		return fmt.Errorf("%d requests but %d prompts in %s: a prompt sent twice would measure a cache; ask for fewer", len(at), len(list), baseName(set.Text("prompts")))
	}
	output, err := p.lengths(set, "output", &p.header.Output)
	if err != nil {
		return err
	}
	think := p.thinking(set)
	for i, t := range at {
		for _, r := range list[i] {
			if r.OutputTokens == 0 {
				if output == nil {
					return fmt.Errorf("prompt %s of %s states no output length: say output = { ... }", r.ID, baseName(set.Text("prompts")))
				}
				r.OutputTokens = output()
			}
			p.add(r.ID, t, r.Model, 0, r.OutputTokens, r.Prompt)
			q := &p.requests[len(p.requests)-1]
			if q.Conversation, q.Turn = r.Conversation, r.Turn; r.Turn > 0 {
				q.ThinkNs = think()
			}
		}
	}
	return nil
}

// generate draws everything.
func (p *plan) generate(set schemas.Settings) error {
	at, err := p.arrivals(set, 0)
	if err != nil {
		return err
	}
	input, err := p.lengths(set, "input", &p.header.Input)
	if err != nil {
		return err
	}
	output, err := p.lengths(set, "output", &p.header.Output)
	if err != nil {
		return err
	}
	p.header.WorkloadForm = "generated"
	pick := workload.Assign(len(p.models), p.header.Seeds.Assignment)
	for i, t := range at {
		p.add(strconv.Itoa(i), t, p.models[pick()], input(), output(), workload.Prompt{})
	}
	return nil
}

// arrivals are the times of the requests: drawn in open loop, else all 0. Without
// requests or duration there are as many as there are prompts.
func (p *plan) arrivals(set schemas.Settings, prompts int) ([]int64, error) {
	n := set.Int("requests")
	closed := p.header.Mode != schemas.ModeOpen
	switch {
	case n == 0 && (closed || !set.Has("duration")) && prompts > 0:
		n = prompts
	case n == 0 && closed:
		n = prepared(max(1, set.Int("concurrency")), set.Duration("duration"))
	}
	if closed {
		return make([]int64, n), nil
	}
	t := set.Table("arrival")
	process := schemas.ArrivalProcess{
		Process: t.Text("process"), Rate: t.Float("rate"), Shape: t.Float("shape"), OnMs: ms(t, "on"), OffMs: ms(t, "off"),
		OffRate: t.Float("off_rate"), ToRate: t.Float("to_rate"), OverMs: ms(t, "over"),
	}
	p.header.Arrival, p.header.Process = process.Process, &process
	at, err := workload.Arrivals(process, n, set.Duration("duration"), p.header.Seeds.Arrival)
	if err != nil {
		return nil, err
	}
	if speed := p.header.Speed; speed != 1 {
		return nil, fmt.Errorf("speed %s is for workload files: change the rate of arrival instead", schemas.Decimal(speed))
	}
	return at, nil
}

func ms(t schemas.Settings, key string) float64 {
	return float64(t.Duration(key)) / float64(time.Millisecond)
}

// lengths gives what draws lengths, and notes its law; nil when there is none.
func (p *plan) lengths(set schemas.Settings, key string, note **schemas.LengthSpec) (func() int, error) {
	t := set.Table(key)
	if t == nil {
		return nil, nil
	}
	d := schemas.LengthSpec{Dist: t.Text("dist"), Tokens: t.Int("tokens"), Min: t.Int("min"), Max: t.Int("max"), Mean: t.Float("mean"), Sigma: t.Float("sigma")}
	if d.Dist == workload.DistLognormal && !t.Has("sigma") {
		d.Sigma = 1
	}
	if err := workload.CheckLengths(key, d); err != nil {
		return nil, err
	}
	*note = &d
	return workload.Lengths(key, d, p.header.Seeds.Content), nil
}

// switches visits every ordered pair of models. The first use of a model that no
// warm-up touched is cold, every other one a switch; the first request of all
// follows no other. Requests that follow a switch at once are steady.
func (p *plan) switches(set schemas.Settings, warm bool) error {
	if len(p.models) < 2 {
		return fmt.Errorf("mode switch needs two models or more, there is %d", len(p.models))
	}
	input, err := p.lengths(set, "input", &p.header.Input)
	if err != nil {
		return err
	}
	output, err := p.lengths(set, "output", &p.header.Output)
	if err != nil {
		return err
	}
	p.header.WorkloadForm = "generated"
	used, before := map[int]bool{}, ""
	for _, m := range workload.Switches(len(p.models), set.Int("rounds"), p.header.Seeds.Order) {
		add := func() *loadgen.Request {
			p.add(strconv.Itoa(len(p.requests)), 0, p.models[m], input(), output(), workload.Prompt{})
			return &p.requests[len(p.requests)-1]
		}
		r := add()
		r.SwitchFrom = before
		switch {
		case !used[m] && !warm:
			r.Phase = schemas.PhaseCold
		case before != "":
			r.Phase = schemas.PhaseSwitch
		}
		for range set.Int("steady") {
			add().Phase = schemas.PhaseSteady
		}
		used[m], before = true, p.models[m]
	}
	return nil
}
