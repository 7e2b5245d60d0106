package measure

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"assay/pipeline"
	"assay/schemas"

	"golang.org/x/sys/unix"
)

// conditionList collects the circumstances of a result.
type conditionList struct {
	list    []schemas.Condition
	subject string
}

func (c *conditionList) add(name string, value any) {
	c.list = append(c.list, schemas.Condition{Name: name, Subject: c.subject, Value: value})
}

func (c *conditionList) unknown(name, why string) {
	c.list = append(c.list, schemas.Condition{Name: name, Subject: c.subject, Unknown: why})
}

// either adds a value, or why there is none.
func (c *conditionList) either(name string, value any, why string) {
	if value == nil || value == "" {
		c.unknown(name, why)
		return
	}
	c.add(name, value)
}

// conditions lists everything the result was obtained under. What could not be
// learnt is there too, with the reason.
func conditions(task *pipeline.Task, set schemas.Settings, p plan, res schemas.Result, seen *lengths, anchor time.Time) []schemas.Condition {
	var c conditionList
	modelConditions(&c, task)
	loadConditions(&c, task, set, p, anchor)
	lengthConditions(&c, p.header.Lengths, seen)
	requestConditions(&c, task, set, res)
	serviceConditions(&c, task)
	orderConditions(&c, task)
	hostConditions(&c)
	return c.list
}

func modelConditions(c *conditionList, task *pipeline.Task) {
	const none = "the experiment describes no model"
	if len(task.Models) == 0 {
		c.unknown("model", none)
		c.unknown("checkpoint_path", none)
		c.unknown("checkpoint_fingerprint", none)
	}
	for _, m := range task.Models {
		c.subject = "model " + m.ID
		c.add("model", m.Name)
		// As written: a machine's own folders stay out of archives.
		c.either("checkpoint_path", task.Experiment.Model[m.ID].Checkpoint, "the experiment names no checkpoint")
		if m.Fingerprint == "" {
			c.unknown("checkpoint_fingerprint", m.Unknown)
			continue
		}
		c.add("checkpoint_fingerprint", string(m.Fingerprint))
		c.add("checkpoint_fingerprint_level", m.Level)
	}
	c.subject = ""
	c.add("served_models", append([]string{}, task.Service.Models...))
}

func loadConditions(c *conditionList, task *pipeline.Task, set schemas.Settings, p plan, anchor time.Time) {
	h := p.header
	c.add("arrival_process", arrivalText(h))
	c.add("arrival_seed", h.Seeds.Arrival)
	c.add("assignment_seed", h.Seeds.Assignment)
	c.add("content_seed", h.Seeds.Content)
	c.add("order_seed", h.Seeds.Order)
	c.add("schedule_digest", string(h.RequestsDigest))
	c.either("workload_digest", string(h.WorkloadDigest), "the requests were generated")
	c.add("workload_form", h.WorkloadForm)
	if h.Reading != nil {
		c.add("workload_reading", *h.Reading)
	}
	if h.Process != nil {
		c.add("arrival_parameters", *h.Process)
	}
	if h.Input != nil {
		c.add("input_lengths", *h.Input)
	}
	if h.Output != nil {
		c.add("output_lengths", *h.Output)
	}
	c.add("speed", p.header.Speed)
	if w := set.List("window"); len(w) == 2 {
		c.add("window", w)
	} else {
		c.add("window", "the whole workload")
	}
	c.add("requests", p.header.Requests)
	c.add("stop_condition", p.stopText())
	if turns := p.turns(); turns != nil {
		c.add("conversations", turns)
		c.add("think_time", set.Table("think"))
	}
	if ms := task.Service.ReadyMs; ms != nil {
		c.add("startup_ms", *ms)
	} else {
		c.unknown("startup_ms", "the service was attached to, not started")
	}
	c.add("first_use", h.FirstUse)
	mapping := map[string]string{}
	for _, m := range p.mapping {
		mapping[m.From] = m.To
	}
	c.add("model_mapping", mapping)
	c.add("concurrency", concurrencyText(h, set.Int("max_connections")))
	c.add("started_at", anchor.UTC().Format(time.RFC3339Nano))
}

func arrivalText(h schemas.Schedule) string {
	switch {
	case h.Mode != schemas.ModeOpen:
		return h.Mode + ": a request is sent when another ends"
	case h.Process != nil:
		return fmt.Sprintf("%s at %s requests/s, in open loop", h.Process.Process, schemas.Decimal(h.Process.Rate))
	}
	return h.Arrival + ": every arrival as the workload has it, in open loop"
}

func concurrencyText(h schemas.Schedule, connections int) string {
	switch {
	case h.Concurrency > 0:
		return fmt.Sprintf("closed loop: %d in flight", h.Concurrency)
	case h.MaxInFlight > 0:
		return fmt.Sprintf("open loop: at most %d in flight, requests beyond wait (queue_ms)", h.MaxInFlight)
	}
	return fmt.Sprintf("open loop: not limited but by %d connections of the client", connections)
}

func lengthConditions(c *conditionList, calibrated *schemas.LengthCalibration, seen *lengths) {
	const none = "no request ended properly with a count"
	c.either("prompt_length_asked", seen.askedIn.value(), "no request was issued")
	c.either("prompt_length_actual", seen.actualIn.value(), none)
	c.add("prompt_length_sources", seen.inSources)
	c.either("generated_tokens_asked", seen.askedOut.value(), "no request was issued")
	c.either("generated_tokens_actual", seen.actualOut.value(), none)
	c.add("generated_tokens_sources", seen.outSources)
	c.either("prompt_length_difference", seen.inDiff.value(), "no prompt's length was both asked and counted")
	c.either("generated_tokens_difference", seen.outDiff.value(), none)
	if calibrated != nil {
		c.add("prompt_length_calibration", *calibrated)
	} else {
		c.add("prompt_length_calibration", "none: prompts are token ids, or the service names no tokenizer")
	}
}

// heldBy is the field of a request that asks for an exact length.
func heldBy(task *pipeline.Task, set schemas.Settings) string {
	switch {
	case !set.Bool("ignore_eos"):
		return "nothing"
	case task.Service.Asking.MinTokens:
		return "min_tokens"
	}
	return "ignore_eos"
}

func requestConditions(c *conditionList, task *pipeline.Task, set schemas.Settings, res schemas.Result) {
	c.add("api", set.Text("api"))
	c.add("sampling_settings", map[string]any{"temperature": 0, "ignore_eos": set.Bool("ignore_eos"), "held_by": heldBy(task, set)})
	c.add("stream_mode", "server-sent events, usage included")
	c.add("request_timeout", set.Text("request_timeout"))
	c.add("idle_timeout", set.Text("idle_timeout"))
	c.add("stamp_source", res.StampSource)
}

func orderConditions(c *conditionList, task *pipeline.Task) {
	c.add("trial_order", task.Experiment.Trials.Order)
	if task.Trial.ID != "" {
		c.add("trial_position", task.Trial.Position)
		c.add("trial_repetition", task.Trial.Repetition)
	}
	warm := warmups(task)
	if len(warm) == 0 {
		c.add("warm_up", "none: no warmup or load stage comes before this one")
		return
	}
	c.add("warm_up", warm)
}

// warmups lists the warmup and load stages that this stage needs, over any number of
// steps, with their rules as written.
func warmups(task *pipeline.Task) map[string]any {
	found, seen := map[string]any{}, map[string]bool{}
	var visit func(stage string)
	visit = func(stage string) {
		if seen[stage] {
			return
		}
		seen[stage] = true
		def := task.Experiment.Stage[stage]
		if (def.Kind == "warmup" || def.Kind == "load") && def.Service == task.Experiment.Stage[task.Node.Stage].Service {
			rule := map[string]any{}
			for _, k := range []string{"count", "stable", "switches", "input_tokens", "output_tokens"} {
				if v, ok := def.Config[k]; ok {
					rule[k] = v
				}
			}
			found[stage] = rule
		}
		for _, n := range def.Needs {
			visit(n)
		}
		for _, ref := range schemas.References(def.Config) {
			if ref.Namespace == schemas.RefStage {
				visit(ref.Names[0])
			}
		}
	}
	visit(task.Node.Stage)
	return found
}

func hostConditions(c *conditionList) {
	c.add("platform", runtime.GOOS+"/"+runtime.GOARCH)
	host, err := os.Hostname()
	if err != nil {
		c.unknown("host", err.Error())
	} else {
		c.add("host", host)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		c.unknown("kernel_version", err.Error())
	} else {
		c.add("kernel_version", unix.ByteSliceToString(u.Release[:]))
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		c.add("client_version", info.Main.Path+" "+info.Main.Version)
	} else {
		c.unknown("client_version", "the program was built without version information")
	}
}
