package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/schemas"
)

// The reasons of a refusal.
const (
	IDNothing    = "compare.nothing"
	IDUnpaired   = "compare.unpaired"
	IDSame       = "compare.same"
	IDKind       = "compare.kind-differs"
	IDRequests   = "compare.requests-differ"
	IDModels     = "compare.models-differ"
	IDPrompts    = "compare.prompts-differ"
	IDTimes      = "compare.times-differ"
	IDLengths    = "compare.lengths-differ"
	IDFailed     = "compare.failed"
	IDGenerated  = "compare.generated-differs"
	IDOutput     = "compare.output-differs"
	IDEngines    = "compare.engines-differ"
	IDConditions = "compare.conditions-differ"
	IDParameters = "compare.parameters-differ"
	IDFacts      = "compare.unreadable"
	// IDTolerance is no refusal: the comparison was made, and the difference is too large.
	IDTolerance = "compare.tolerance"
)

// outcomes are conditions that say what came out, or when, and not under what. What
// requests were made from is not compared either: the requests themselves are.
var outcomes = []string{
	"started_at", "startup_ms", "trial_position", "trial_repetition", "prompt_length_actual", "prompt_length_sources", "prompt_length_difference", "prompt_length_calibration",
	"generated_tokens_actual", "generated_tokens_sources", "generated_tokens_difference", "schedule_digest", "arrival_seed", "assignment_seed", "content_seed", "order_seed",
	"simulation_counters", "simulated_cluster", "batch_term_effect",
}

// engineSet is the name by which a difference of engines is allowed.
const engineSet = "engines"

// checker holds one pair against each other.
type checker struct {
	opts    Options
	pair    Pair
	subject string
	list    []schemas.Finding
	unknown map[string]bool // conditions that neither side knows
}

func (c *checker) refuse(id, remedy, format string, args ...any) {
	c.list = append(c.list, schemas.Finding{ID: id, Severity: schemas.SeverityError, Subject: c.subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// kinds holds what the results are against each other.
func (c *checker) kinds() {
	a, b := c.pair.Baseline.Result, c.pair.Candidate.Result
	const remedy = "compare results of one sort"
	for _, f := range []struct {
		what string
		a, b any
	}{
		{"emulated", a.Emulated, b.Emulated}, {"simulated", a.Simulated, b.Simulated}, {"metrics version", a.MetricsVersion, b.MetricsVersion}, {"headline", a.Headline, b.Headline},
		{"speed", a.Speed, b.Speed}, {"targets (slo)", sloText(a.SLO), sloText(b.SLO)}, {"stamps", a.StampSource, b.StampSource},
	} {
		if f.a != f.b && !(f.what == "stamps" && slices.Contains(c.opts.Differ, "stamp_source")) {
			c.refuse(IDKind, remedy, "%s: %s and %s", f.what, schemas.PlainText(f.a), schemas.PlainText(f.b))
		}
	}
}

func sloText(s *schemas.SLO) string {
	if s == nil {
		return "none"
	}
	return "TTFT " + schemas.Decimal(s.TTFTMs) + " ms, TPOT " + schemas.Decimal(s.TPOTMs) + " ms"
}

// requests holds every request against its partner; of each reason the first is told,
// and how many there are.
func (c *checker) requests(a, b []Request) (same, known int) {
	const workload = "compare trials of one workload: equal seeds, and a stage's prompts held by seeds.content"
	if len(a) != len(b) {
		c.refuse(IDRequests, workload, "%d requests and %d", len(a), len(b))
		return 0, 0
	}
	if len(a) == 0 {
		c.refuse(IDRequests, workload, "there are no requests")
		return 0, 0
	}
	seen := map[string]int{}
	first := map[string]string{}
	note := func(id, format string, args ...any) {
		if seen[id]++; seen[id] == 1 {
			first[id] = fmt.Sprintf(format, args...)
		}
	}
	for i := range a {
		x, y := a[i], b[i]
		at := "request " + x.ID
		switch {
		case x.Index != y.Index || x.ID != y.ID:
			note(IDRequests, "request %s (index %d) stands against %s (index %d)", x.ID, x.Index, y.ID, y.Index)
			continue
		case x.Model != y.Model:
			note(IDModels, "%s: %s and %s", at, x.Model, y.Model)
		case x.Input != y.Input || x.Output != y.Output:
			note(IDLengths, "%s: asked for %d + %d tokens and for %d + %d", at, x.Input, x.Output, y.Input, y.Output)
		case x.Prompt != y.Prompt:
			note(IDPrompts, "%s: its prompts differ", at)
		case x.AtNs != y.AtNs && !c.closed():
			note(IDTimes, "%s: due after %s ms and %s ms", at, schemas.Rounded(float64(x.AtNs)/1e6, 6), schemas.Rounded(float64(y.AtNs)/1e6, 6))
		}
		for k, q := range []Request{x, y} {
			if q.Outcome != schemas.OutcomeOK {
				note(IDFailed, "%s of the %s ended with %s", at, []string{"baseline", "candidate"}[k], q.Outcome)
			}
		}
		if x.Generated != y.Generated {
			note(IDGenerated, "%s: %s tokens and %s", at, countText(x.Generated), countText(y.Generated))
		}
		if x.Text != "" && y.Text != "" {
			if known++; x.Text == y.Text {
				same++
			} else if c.opts.SameOutput {
				note(IDOutput, "%s: the generated texts differ", at)
			}
		} else if c.opts.SameOutput {
			note(IDOutput, "%s: its generated text is not known on both sides", at)
		}
	}
	remedies := map[string]string{
		IDFailed: "find out why requests failed: a comparison of the rest would be one of survivors", IDGenerated: "hold the service to a length (ignore_eos), or compare systems that answer alike",
		IDOutput: "answers changed: find out why before looking at times, or leave same_output out", IDTimes: "compare trials with one schedule of arrivals",
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		more := ""
		if n := seen[id] - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more of %d requests)", n, len(a))
		}
		c.refuse(id, cmp.Or(remedies[id], workload), "%s%s", first[id], more)
	}
	return same, known
}

// closed says that requests have no times of their own.
func (c *checker) closed() bool { return c.pair.Baseline.Result.Headline == "ttft_ms" }

func countText(n int) string {
	if n < 0 {
		return "an unknown number of"
	}
	return fmt.Sprint(n)
}

func (c *checker) engines(a, b []string) {
	if slices.Contains(c.opts.Differ, engineSet) || slices.Equal(a, b) {
		return
	}
	text := func(list []string) string {
		if list == nil {
			return "unknown"
		}
		return strings.Join(list, " ")
	}
	c.refuse(IDEngines, "compare systems of the same engines, or say differ = [\"engines\"] when they are what is compared", "engines: %s and %s", text(a), text(b))
}

// conditions holds circumstances against each other. One that is the compared
// parameter itself differs by right.
func (c *checker) conditions(a, b []schemas.Condition) {
	x, y := c.conditionMap(a, c.pair.Baseline), c.conditionMap(b, c.pair.Candidate)
	names := maps.Clone(x)
	maps.Copy(names, y)
	var differ []string
	for _, k := range slices.Sorted(maps.Keys(names)) {
		p, okP := x[k]
		q, okQ := y[k]
		name, _, _ := strings.Cut(k, " of ")
		if slices.Contains(c.opts.Differ, name) {
			continue
		}
		switch {
		case okP && okQ && p.unknown != "" && q.unknown != "":
			c.unknown[name] = true
		case okP != okQ || (p.unknown == "") != (q.unknown == "") || !bytes.Equal(p.value, q.value):
			if name == RequestsCondition {
				c.refuse(IDRequests, "compare simulations of one workload", "the simulated requests differ: in ids, models, times or lengths")
			} else if !c.byRight(p, q) {
				differ = append(differ, fmt.Sprintf("%s: %s and %s", k, p.text(okP), q.text(okQ)))
			}
		}
	}
	const shown = 6
	if n := len(differ); n > 0 {
		more := ""
		if n > shown {
			differ, more = differ[:shown], fmt.Sprintf("; and %d more", n-shown)
		}
		c.refuse(IDConditions, "compare under one set of conditions, or name in differ those that are what is compared", "%s%s", strings.Join(differ, "; "), more)
	}
}

type condition struct {
	value   []byte
	unknown string
}

func (c condition) text(there bool) string {
	const longest = 120
	switch {
	case !there:
		return "not stated"
	case c.unknown != "":
		return "unknown (" + c.unknown + ")"
	case len(c.value) > longest:
		return strings.ToValidUTF8(string(c.value[:longest]), "") + "..."
	}
	return string(c.value)
}

// byRight says that a condition's two values are those of the compared parameter.
func (c *checker) byRight(p, q condition) bool {
	a, okA := c.pair.Baseline.param(c.opts.By)
	b, okB := c.pair.Candidate.param(c.opts.By)
	if !okA || !okB {
		return false
	}
	x, errX := schemas.Encode(a)
	y, errY := schemas.Encode(b)
	return errX == nil && errY == nil && bytes.Equal(p.value, x) && bytes.Equal(q.value, y)
}

// param is the value of a parameter in a trial.
func (t *Trial) param(name string) (any, bool) {
	if v, ok := t.Point[name]; ok {
		return v, true
	}
	v, ok := t.Params[name]
	return v, ok
}

func (c *checker) conditionMap(list []schemas.Condition, t *Trial) map[string]condition {
	out := map[string]condition{}
	for _, cond := range list {
		if slices.Contains(outcomes, cond.Name) {
			continue
		}
		key, value := cond.Name, cond.Value
		if cond.Subject != "" && cond.Subject != t.Stage {
			key += " of " + cond.Subject
		}
		if m, ok := value.(map[string]any); ok && cond.Name == "warm_up" {
			value = rules(m) // whatever the stages are called
		}
		b, err := schemas.Encode(value)
		if err != nil {
			b = []byte(err.Error())
		}
		out[key] = condition{b, cond.Unknown}
	}
	return out
}

// rules are the rules of warm-up stages without their names.
func rules(m map[string]any) []string {
	var out []string
	for _, v := range m {
		b, err := schemas.Encode(v)
		if err != nil {
			b = []byte(err.Error())
		}
		out = append(out, string(b))
	}
	slices.Sort(out)
	return out
}

// params holds the parameters of two runs against each other.
func (c *checker) params() {
	a, b := c.pair.Baseline.Params, c.pair.Candidate.Params
	names := maps.Clone(a)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, b)
	var differ []string
	for _, k := range slices.Sorted(maps.Keys(names)) {
		if k == c.opts.By || slices.Contains(c.opts.Differ, k) {
			continue
		}
		if x, y := schemas.PlainText(a[k]), schemas.PlainText(b[k]); x != y {
			differ = append(differ, fmt.Sprintf("%s: %s and %s", k, x, y))
		}
	}
	if len(differ) > 0 {
		c.refuse(IDParameters, "compare runs with the same parameters, or name with --by the one that is compared", "%s", strings.Join(differ, "; "))
	}
}
