package load

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"assay/internal/observe"
	"assay/schemas"
)

// noteEvictions tells which models had to make room for one: those that the answer
// names, and those that were ready before and are no more.
func (l *load) noteEvictions(b *bringing, before observe.Runtime) {
	by := b.spec.model
	if b.answer != nil {
		for node, models := range b.answer.evicted {
			for _, m := range models {
				l.evicted(schemas.LoadEviction{Model: m, Node: node, By: by, ToldBy: "answer"})
			}
		}
	}
	for model := range before.Placements {
		for _, node := range before.ReadyOn(model) {
			if model != by && b.last.Placements != nil && b.last.Placements[model][node].State != observe.ReplicaReady {
				l.evicted(schemas.LoadEviction{Model: model, Node: node, By: by, ToldBy: "snapshot"})
			}
		}
	}
	slices.SortStableFunc(l.sum.Evictions, func(x, y schemas.LoadEviction) int {
		return cmp.Or(l.order(x.By)-l.order(y.By), strings.Compare(x.Node, y.Node), strings.Compare(x.Model, y.Model))
	})
}

func (l *load) order(model string) int {
	return slices.IndexFunc(l.specs, func(s spec) bool { return s.model == model })
}

func (l *load) evicted(e schemas.LoadEviction) {
	for _, o := range l.sum.Evictions {
		if o.Model == e.Model && o.By == e.By && (o.Node == e.Node || o.Node == "" || e.Node == "") {
			return
		}
	}
	l.sum.Evictions = append(l.sum.Evictions, e)
}

// checkReady is an error when a model that was ready is so no more: a later one took
// its room.
func (l *load) checkReady(s observe.Runtime) error {
	if s.Placements == nil {
		return nil
	}
	for i, spec := range l.specs[:len(l.sum.Models)] {
		on := s.ReadyOn(spec.model)
		missing := ""
		for _, r := range l.sum.Models[i].Replicas {
			if r.State == observe.ReplicaReady && !slices.Contains(on, r.Node) {
				missing = r.Node
			}
		}
		if missing == "" {
			continue
		}
		by := "nothing says by what"
		for _, e := range l.sum.Evictions {
			if e.Model == spec.model && (e.Node == missing || e.Node == "") {
				by = "evicted for model " + e.By
			}
		}
		return l.fail(schemas.Finding{ID: "load.evicted", Subject: "model " + spec.model,
			Message: fmt.Sprintf("it was ready on %s and is no more: %s", missing, by),
			Remedy:  "give the cache of weights room for all models (model_cache_size_gb), or load fewer"})
	}
	return nil
}

// account holds what the service counts and caches against what was seen.
func (l *load) account(s observe.Runtime) {
	if s.Evictions != nil && l.evictions != nil {
		n := *s.Evictions - *l.evictions
		l.sum.EvictionsCounted = &n
		if named := float64(len(l.sum.Evictions)); n > named {
			l.task.Report(schemas.Finding{ID: "load.evictions-unnamed", Severity: schemas.SeverityWarning, Subject: "service " + l.task.Service.Name,
				Message: fmt.Sprintf("it counts %s evictions, %s of which are known by name: a node that fails after it evicted does not name them", schemas.Decimal(n), schemas.Decimal(named)),
				Remedy:  "restart the service before measuring"})
		}
	}
	var wrong []string
	for model, nodes := range s.Placements {
		for node, p := range nodes {
			models, told := s.Cached[node]
			if told && p.State == observe.ReplicaReady && !slices.Contains(models, model) {
				wrong = append(wrong, model+" on "+node)
			}
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		l.task.Report(schemas.Finding{ID: "load.cache-disagrees", Severity: schemas.SeverityWarning, Subject: "service " + l.task.Service.Name,
			Message: "ready by the placements but not among the cached models: " + l.talk.short(strings.Join(wrong, ", ")),
			Remedy:  "restart the service: its table of replicas and its cache disagree"})
	}
}
