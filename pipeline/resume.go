package pipeline

import (
	"context"
	"fmt"
	"path/filepath"

	"assay/schemas"
)

// kept is what an interrupted run leaves to the one that goes on: records that
// stand, and how often each lifetime was tried.
type kept struct {
	records  map[string]schemas.RunRecord // by node
	services []schemas.ServiceRecord
	attempts map[string]int // unit or node -> attempts so far
	resumed  int
}

// keep reads what stands in a journal. The unit of resume is a service's
// lifetime: a record made with a service counts only when that lifetime ended
// properly with all its nodes done, else the whole lifetime runs again.
// What is not whole any more is made anew.
func keep(plan schemas.Plan, u Unsealed, whole func(what string, tree schemas.Digest) bool) kept {
	k := kept{records: map[string]schemas.RunRecord{}, attempts: map[string]int{}}
	ended := map[string]schemas.ServiceRecord{}
	for _, ev := range u.events {
		switch ev.Event {
		case "start":
			k.resumed = ev.Start.Resume
		case "unit_start":
			k.attempts[ev.Unit] = ev.Attempt
			delete(ended, ev.Unit)
			k.dropUnit(plan, ev.Unit)
		case "record":
			if ev.Record.Record.Status == schemas.StagePassed {
				k.records[ev.Record.Node] = *ev.Record
			} else {
				delete(k.records, ev.Record.Node)
			}
			k.attempts[ev.Record.Node] = ev.Record.Record.Attempt
		case "unit_end":
			if ev.Service != nil && (ev.Service.Status == "stopped" || ev.Service.Status == "detached") {
				ended[ev.Unit] = *ev.Service
			}
		}
	}
	for id, rec := range k.records {
		if rec.Record.Tree != "" && !whole("the result of "+id, rec.Record.Tree) {
			delete(k.records, id)
		}
	}
	for id, rec := range ended {
		if rec.Tree != "" && !whole("the account of service lifetime "+id, rec.Tree) {
			delete(ended, id)
		}
	}
	for _, unit := range plan.Services {
		if _, ok := ended[unit.ID]; !ok || !k.holdsAll(unit.Nodes) {
			k.dropUnit(plan, unit.ID)
			delete(ended, unit.ID)
		}
	}
	k.dropDependants(plan)
	for _, unit := range plan.Services {
		if rec, ok := ended[unit.ID]; ok && k.holdsAll(unit.Nodes) {
			k.services = append(k.services, rec)
		} else {
			k.dropUnit(plan, unit.ID)
		}
	}
	k.dropDependants(plan)
	return k
}

// whole reads what a run that goes on would name: it may have been damaged since.
func (r *runner) whole(ctx context.Context, what string, tree schemas.Digest) bool {
	err := r.Store.CheckTree(ctx, tree)
	if err != nil {
		r.findings = append(r.findings, schemas.Finding{ID: "resume.damaged", Severity: schemas.SeverityWarning, Subject: "run " + r.RunID,
			Message: fmt.Sprintf("%s is damaged and is made anew: %v", what, err), Remedy: "`assay fsck` looks at the whole store"})
	}
	return err == nil
}

func (k *kept) holdsAll(nodes []string) bool {
	for _, n := range nodes {
		if _, ok := k.records[n]; !ok {
			return false
		}
	}
	return true
}

func (k *kept) dropUnit(plan schemas.Plan, unit string) {
	for _, u := range plan.Services {
		if u.ID == unit {
			for _, n := range u.Nodes {
				delete(k.records, n)
			}
		}
	}
}

// dropDependants drops what was made from something that is dropped. Nodes are
// in topological order, so one pass is enough.
func (k *kept) dropDependants(plan schemas.Plan) {
	for _, n := range plan.Nodes {
		if !k.holdsAll(n.Needs) {
			delete(k.records, n.ID)
		}
	}
}

// PickUnsealed chooses the run that --resume means: the named one, or the newest
// interrupted run of the same effective experiment.
func PickUnsealed(storeDir, runID string, experiment schemas.Digest, sealed func(runID string) bool) (Unsealed, error) {
	found, damaged, err := ListUnsealed(storeDir, sealed)
	if err != nil {
		return Unsealed{}, err
	}
	for _, d := range damaged {
		if runID != "" && filepath.Base(d.File) == runID+".jsonl" {
			return Unsealed{}, &ResumeError{d.Error()}
		}
	}
	for _, u := range found {
		switch {
		case runID != "" && u.RunID != runID:
		case u.Digest != experiment:
			if runID != "" {
				return Unsealed{}, &ResumeError{fmt.Sprintf("run %s is of another effective experiment (%s): give the same file and --set values", runID, u.Digest.Short())}
			}
		default:
			return u, nil
		}
	}
	if runID != "" {
		return Unsealed{}, &ResumeError{fmt.Sprintf("no interrupted run %s in this store", runID)}
	}
	return Unsealed{}, &ResumeError{"no interrupted run of this effective experiment in this store: run it without --resume"}
}
