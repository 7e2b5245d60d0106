package foundry

import (
	"fmt"
	"slices"
	"strings"

	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

// modes in the order in which they are reported.
var modes = []string{schemas.GraphsOff, schemas.GraphsSave, schemas.GraphsLoad}

// Judge holds what was seen in the three modes against the documented criteria of a
// validation, and against the configuration that all three were started with.
func Judge(byMode map[string]schemas.Graphs, config aegaeon.Config) []schemas.ValidatedCheck {
	j := &judge{byMode: byMode, config: config, models: modelNames(config)}
	j.add("modes", j.modesThere())
	if len(j.checks[0].Detail) > 0 && !j.checks[0].OK {
		return j.checks // nothing else can be said
	}
	j.add("models", j.sameModels())
	j.add("answers", j.answered())
	j.add("tokens-generated", j.generated())
	j.add("bucket", j.inBucket())
	j.add("prompts-equal", j.prompts())
	j.add("token-ids-equal", j.tokens())
	j.add("switches", j.switched())
	j.add("off-markers", j.markers(schemas.GraphsOff, nil, []string{MarkerCaptured, MarkerLoaded, MarkerReplay}))
	j.add("save-markers", j.markers(schemas.GraphsSave, []string{MarkerCaptured, MarkerReplay}, []string{MarkerLoaded}))
	j.add("load-markers", j.markers(schemas.GraphsLoad, []string{MarkerLoaded, MarkerReplay}, []string{MarkerCaptured}))
	return j.checks
}

type judge struct {
	byMode map[string]schemas.Graphs
	config aegaeon.Config
	models []string
	checks []schemas.ValidatedCheck
}

// verdict is a detail, and whether it is bad.
type verdict struct {
	bad    []string
	detail string
}

func (v *verdict) fail(format string, args ...any) {
	v.bad = append(v.bad, fmt.Sprintf(format, args...))
}

func (j *judge) add(id string, v verdict) {
	const shown = 5
	detail := v.detail
	if len(v.bad) > 0 {
		detail = strings.Join(v.bad[:min(shown, len(v.bad))], "; ")
		if len(v.bad) > shown {
			detail += fmt.Sprintf("; and %d more", len(v.bad)-shown)
		}
	}
	j.checks = append(j.checks, schemas.ValidatedCheck{ID: id, OK: len(v.bad) == 0, Detail: detail})
}

func modelNames(c aegaeon.Config) []string {
	var names []string
	for _, m := range c.Models {
		names = append(names, m.Name)
	}
	return names
}

func (j *judge) modesThere() (v verdict) {
	v.detail = "each mode was run in a process of its own"
	for _, mode := range modes {
		if _, ok := j.byMode[mode]; !ok {
			v.fail("there is no graphs stage of mode %s", mode)
		}
	}
	return v
}

func (j *judge) sameModels() (v verdict) {
	v.detail = "every mode asked " + strings.Join(j.models, ", ")
	want := slices.Sorted(slices.Values(j.models))
	for _, mode := range modes {
		if got := slices.Sorted(slices.Values(j.byMode[mode].Models)); !slices.Equal(got, want) {
			v.fail("mode %s asked %s, the configuration has %s", mode, strings.Join(got, ", "), strings.Join(want, ", "))
		}
	}
	if len(want) < 2 {
		v.fail("the configuration has %d models: switches need two at least", len(want))
	}
	return v
}

// each calls f for every answer.
func (j *judge) each(f func(mode string, n int, a schemas.GraphsAnswer)) {
	for _, mode := range modes {
		for n, a := range j.byMode[mode].Answers {
			f(mode, n, a)
		}
	}
}

func (j *judge) answered() (v verdict) {
	total := 0
	for _, mode := range modes {
		g := j.byMode[mode]
		if len(g.Models) > 0 && len(g.Answers) != len(visits(g.Models)) {
			v.fail("mode %s: %d answers to %d requests", mode, len(g.Answers), len(visits(g.Models)))
		}
	}
	j.each(func(mode string, n int, a schemas.GraphsAnswer) {
		total++
		if a.Outcome != schemas.OutcomeOK {
			v.fail("mode %s: request %d to %s ended with %s", mode, n, a.Model, a.Outcome)
		}
	})
	v.detail = fmt.Sprintf("%d requests were answered", total)
	return v
}

func (j *judge) generated() (v verdict) {
	v.detail = "every answer has two tokens or more"
	j.each(func(mode string, n int, a schemas.GraphsAnswer) {
		if len(a.TokenIDs) < 2 {
			v.fail("mode %s: request %d to %s generated %d tokens: a decode step needs 2", mode, n, a.Model, len(a.TokenIDs))
		}
	})
	return v
}

func (j *judge) inBucket() (v verdict) {
	buckets := j.config.Server.CUDAGraph.SeqLenBuckets
	if len(buckets) != 1 {
		v.fail("server.cuda_graph.seq_len_buckets has %d values: graphs are saved for exactly one", len(buckets))
		return v
	}
	longest := 0
	j.each(func(mode string, n int, a schemas.GraphsAnswer) {
		all := a.PromptTokens + len(a.TokenIDs)
		longest = max(longest, all)
		if all > buckets[0] {
			v.fail("mode %s: request %d to %s has %d tokens, more than the bucket of %d", mode, n, a.Model, all, buckets[0])
		}
	})
	v.detail = fmt.Sprintf("the longest sequence has %d tokens, the bucket %d", longest, buckets[0])
	return v
}

// first is the first answer of a model in a mode.
func (j *judge) first(mode, model string) (schemas.GraphsAnswer, bool) {
	for _, a := range j.byMode[mode].Answers {
		if a.Model == model {
			return a, true
		}
	}
	return schemas.GraphsAnswer{}, false
}

func (j *judge) prompts() (v verdict) {
	v.detail = "each model had one prompt in all modes"
	for _, model := range j.models {
		want, _ := j.first(schemas.GraphsOff, model)
		j.each(func(mode string, n int, a schemas.GraphsAnswer) {
			if a.Model == model && (a.PromptDigest != want.PromptDigest || a.PromptTokens != want.PromptTokens) {
				v.fail("mode %s: request %d to %s had another prompt than in mode off", mode, n, model)
			}
		})
	}
	return v
}

// equal says whether all answers of a model in a mode are those of mode off.
func (j *judge) equal(mode, model string) bool {
	want, ok := j.first(schemas.GraphsOff, model)
	seen := false
	for _, a := range j.byMode[mode].Answers {
		if a.Model == model {
			seen = true
			ok = ok && slices.Equal(a.TokenIDs, want.TokenIDs)
		}
	}
	return ok && seen
}

func (j *judge) tokens() (v verdict) {
	v.detail = "token ids are equal over modes and visits"
	for _, model := range j.models {
		for _, mode := range modes {
			if !j.equal(mode, model) {
				v.fail("model %s: token ids in mode %s are not those of the first answer in mode off", model, mode)
			}
		}
	}
	return v
}

// switches are the switches in mode load.
func (j *judge) switches() []schemas.ValidatedSwitch {
	var out []schemas.ValidatedSwitch
	for _, a := range j.byMode[schemas.GraphsLoad].Answers {
		if a.After == "" || a.After == a.Model {
			continue
		}
		want, ok := j.first(schemas.GraphsOff, a.Model)
		out = append(out, schemas.ValidatedSwitch{From: a.After, To: a.Model, OK: ok && a.Outcome == schemas.OutcomeOK && slices.Equal(a.TokenIDs, want.TokenIDs)})
	}
	return out
}

func (j *judge) switched() (v verdict) {
	v.detail = "every model was asked after every other and back, with graphs loaded, and answered as before"
	list := j.switches()
	for _, from := range j.models {
		for _, to := range j.models {
			if from == to {
				continue
			}
			if !slices.Contains(list, schemas.ValidatedSwitch{From: from, To: to, OK: true}) {
				v.fail("no proper switch from %s to %s", from, to)
			}
		}
	}
	for _, s := range list {
		if !s.OK {
			v.fail("after the switch from %s to %s the tokens are others", s.From, s.To)
		}
	}
	return v
}

// markers holds a log against what it must and must not tell.
func (j *judge) markers(mode string, want, never []string) (v verdict) {
	g := j.byMode[mode]
	for _, name := range want {
		for _, model := range j.models {
			if !told(g, name, model, len(j.models)) {
				v.fail("the log of mode %s does not tell %q of %s", mode, name, model)
			}
		}
	}
	for _, name := range never {
		if n := g.Marker(name).Lines; n > 0 {
			v.fail("the log of mode %s tells %q in %d lines, and must not", mode, name, n)
		}
	}
	v.detail = "the log of mode " + mode + " tells of " + firstText(strings.Join(want, " and "), "no graphs")
	return v
}

// told says whether a log tells a marker of a model: by name, or, in logs that name no
// models, as often as there are models.
func told(g schemas.Graphs, marker, model string, models int) bool {
	m := g.Marker(marker)
	if len(m.ByModel) == 0 {
		return m.Lines >= models
	}
	return m.ByModel[model].Lines > 0
}

func firstText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
