package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"assay/pipeline"
	"assay/schemas"
)

// spec is one model to bring up.
type spec struct {
	model, path, toolParser string
	nodes                   []string
	replicas, maxModelLen   int
}

// specs are the models of the stage, in order.
func specs(task *pipeline.Task, set schemas.Settings) ([]spec, error) {
	names := set.List("models")
	if !set.Has("models") {
		if names = modelsOf(task); len(names) == 0 {
			return nil, fmt.Errorf("neither the experiment nor service %s names a model: name them with models = [...]", task.Service.Name)
		}
	}
	each := map[string]schemas.Settings{}
	for _, t := range set.Tables("each") {
		m := t.Text("model")
		switch {
		case !slices.Contains(names, m):
			return nil, fmt.Errorf("each: model %q is none of %s", m, strings.Join(names, ", "))
		case each[m] != nil:
			return nil, fmt.Errorf("each: model %q is there twice", m)
		}
		each[m] = t
	}
	var out []spec
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("models: %q is there twice", name)
		}
		s := specOf(name, set, each[name])
		if len(s.nodes) > 0 && s.replicas != len(s.nodes) {
			return nil, fmt.Errorf("model %s: replicas = %d but %d nodes are named: leave one out", name, s.replicas, len(s.nodes))
		}
		out = append(out, s)
	}
	return out, nil
}

// modelsOf are the experiment's models in order of their ids, else the service's.
func modelsOf(task *pipeline.Task) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(task.Experiment.Model)) {
		if name := task.Experiment.Model[id].Name; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		out = slices.Sorted(slices.Values(task.Service.Models))
	}
	return out
}

func specOf(name string, all, own schemas.Settings) spec {
	from := func(key string) schemas.Settings {
		if own.Has(key) {
			return own
		}
		return all
	}
	s := spec{model: name, path: own.Text("path"), toolParser: from("tool_parser").Text("tool_parser"),
		nodes: from("nodes").List("nodes"), replicas: from("replicas").Int("replicas"), maxModelLen: from("max_model_len").Int("max_model_len")}
	if s.replicas == 0 {
		s.replicas = max(1, len(s.nodes))
	}
	return s
}

// body is that of a deploy call.
func (s spec) body() map[string]any {
	b := map[string]any{"model": s.model, "replica_count": s.replicas}
	if len(s.nodes) > 0 {
		b["node_ids"] = s.nodes
	}
	if s.path != "" {
		b["model_path"] = s.path
	}
	if s.maxModelLen > 0 {
		b["max_model_len"] = s.maxModelLen
	}
	if s.toolParser != "" {
		b["tool_parser"] = s.toolParser
	}
	return b
}

// undeploys lists the models to undeploy at the end.
func undeploys(set schemas.Settings, specs []spec) []string {
	if list, ok := set["undeploy"].([]any); ok {
		return schemas.Settings{"l": list}.List("l")
	}
	var out []string
	if set.Bool("undeploy") {
		for _, s := range specs {
			out = append(out, s.model)
		}
	}
	return out
}

// choose decides how models come, from what the stage says and what the service has.
func (l *load) choose(ctx context.Context) error {
	first, told, err := l.talk.look(ctx, "snapshot before")
	if err != nil {
		return fmt.Errorf("ask service %s for its state: %w", l.task.Service.Name, err)
	}
	l.sum.Snapshot = told && first.Placements != nil
	l.evictions = first.Evictions
	l.sum.Via = l.set.Text("via")
	if l.sum.Via == "" {
		if l.sum.Via = schemas.LoadByStartup; told {
			l.sum.Via = schemas.LoadByDeploy
		}
	}
	if l.sum.Via == schemas.LoadByStartup {
		for _, s := range l.specs {
			if s.path != "" || s.maxModelLen > 0 || s.toolParser != "" {
				return fmt.Errorf("model %s: path, max_model_len and tool_parser are for a deploy endpoint, and via is startup: leave them out", s.model)
			}
		}
		if len(l.undeploy) > 0 {
			return errors.New("undeploy: via is startup: a service without a deploy endpoint keeps what its start-up list names")
		}
	}
	return nil
}
