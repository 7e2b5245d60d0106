package cli

import (
	"context"
	"path/filepath"
	"strings"

	"assay/internal/fingerprint"
	"assay/pipeline"
	"assay/preflight/source"
	"assay/schemas"
)

// servesSource says whether a service is started with a file of the source run: only
// then do machine and source run have to agree.
func (l *loaded) servesSource() bool {
	for _, def := range l.Experiment.Service {
		if len(sourcePaths(def.Config)) > 0 {
			return true
		}
	}
	return false
}

// emulatesSource says whether what is started with a file of the source run is the
// emulated engine.
func (l *loaded) emulatesSource() bool {
	for _, def := range l.Experiment.Service {
		if len(sourcePaths(def.Config)) > 0 && def.Engine == "emulated" {
			return true
		}
	}
	return false
}

// target is what a validated run would be used for: the services that are started with
// a file of it, what is asked of them, and what is known of this machine.
func (l *loaded) target(ctx context.Context) source.Target {
	t := source.Target{Facts: l.Machine.Facts, Fingerprints: l.fingerprints(ctx)}
	t.Emulated = l.emulatesSource()
	for _, m := range l.Experiment.Model {
		if !strings.Contains(m.Name, "${") {
			t.Models = append(t.Models, m.Name)
		}
	}
	for _, trial := range l.plan.Trials {
		params := schemas.TrialParams(l.Experiment.Params, trial.Point)
		for _, st := range l.Experiment.Stage {
			if def, ok := l.Experiment.Service[st.Service]; ok && len(sourcePaths(def.Config)) > 0 {
				t.Sequence, t.Batch = max(t.Sequence, sequenceOf(st, params)), max(t.Batch, batchOf(st, params))
			}
		}
	}
	return t
}

// settingsOf resolves a stage's parameters; what refers to anything else stays out of
// the numbers.
func settingsOf(st schemas.StageDef, params map[string]any) schemas.Settings {
	out := schemas.Settings{}
	fields, _ := schemas.FieldsOf(st.Kind)
	for _, f := range fields {
		v, ok := st.Config[f.Name]
		if !ok {
			continue
		}
		got, err := schemas.SubstituteField(f, v, func(ref schemas.Reference) (any, error) {
			if ref.Namespace != schemas.RefParam {
				return nil, pipeline.ErrNotYet
			}
			return params[ref.Names[0]], nil
		})
		if err == nil {
			out[f.Name] = got
		}
	}
	return schemas.ApplyDefaults(fields, out)
}

// sequenceOf is the most tokens of a request of a stage, 0 where that is not known.
func sequenceOf(st schemas.StageDef, params map[string]any) int {
	set := settingsOf(st, params)
	switch st.Kind {
	case "warmup", "load", "graphs":
		return set.Int("input_tokens") + set.Int("output_tokens")
	case "measure":
		longest := func(t schemas.Settings) int { return max(t.Int("tokens"), t.Int("max")) }
		in, out := longest(set.Table("input")), longest(set.Table("output"))
		if n := set.Int("max_total"); n > 0 {
			return n
		}
		if in > 0 && out > 0 {
			return in + out
		}
	}
	return 0
}

func batchOf(st schemas.StageDef, params map[string]any) int {
	if st.Kind != "measure" {
		return 1
	}
	set := settingsOf(st, params)
	switch set.Text("mode") {
	case schemas.ModeSequential, schemas.ModeSwitch:
		return 1
	case schemas.ModeClosed:
		return set.Int("concurrency")
	}
	return set.Int("max_in_flight")
}

// fingerprints are those of the experiment's checkpoints that can be read here, with
// their level, by the names of models.
func (l *loaded) fingerprints(ctx context.Context) map[string]string {
	out := map[string]string{}
	note := func(name, place string) {
		if d, err := fingerprint.Of(ctx, place, fingerprint.Header, nil); err == nil {
			out[name] = string(d) + " " + fingerprint.Header
		}
	}
	for name, place := range l.Machine.Checkpoints {
		note(name, place)
	}
	for _, m := range l.Experiment.Model {
		text, err := schemas.Substitute([]string{m.Name, m.Checkpoint}, func(ref schemas.Reference) (any, error) {
			switch ref.Namespace {
			case schemas.RefMachine:
				if v, ok := l.Machine.Values[ref.Names[0]]; ok {
					return v, nil
				}
			case schemas.RefParam:
				return l.Experiment.Params[ref.Names[0]], nil
			}
			return nil, pipeline.ErrNotYet
		})
		if err != nil || m.Checkpoint == "" {
			continue
		}
		named := text.([]string)
		place := named[1]
		if !filepath.IsAbs(place) {
			place = filepath.Join(l.Dir, filepath.FromSlash(place))
		}
		note(named[0], place)
	}
	return out
}
