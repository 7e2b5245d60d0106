package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// stopLimit bounds the stop of a service whatever its own grace says: after it
// the supervisor's kill is the only way left.
const stopLimit = 10 * time.Minute

// servicesUp brings up what n uses, one step at a time, and says whether all of
// it is up. A service that could not start, or is gone, fails the node.
func (l *loop) servicesUp(n schemas.Node) bool {
	ids := unitsOf(n)
	for i := len(ids) - 1; i >= 0; i-- { // what a service needs comes after it
		u := l.units[ids[i]]
		switch u.state {
		case unitIdle:
			if l.mayStart(u) {
				l.startUnit(u)
			}
			return false
		case unitStarting:
			return false
		case unitStopping, unitDone:
			l.failNode(n, "service "+u.plan.Service+": "+firstText(u.failure, "has ended"))
			return false
		}
		if why := u.live.View().Dead(); why != "" {
			u.failure = why
			l.failNode(n, "service "+u.plan.Service+" died: "+why)
			return false
		}
	}
	return true
}

// mayStart says whether nothing in use stands in the way: a measured stage, a
// service whose work is done but which has not ended, or one on the same device.
func (l *loop) mayStart(u *unitState) bool {
	if l.measured {
		return false
	}
	for _, id := range u.plan.Needs {
		if l.units[id].state != unitUp {
			return false
		}
	}
	for _, other := range l.units {
		if other == u || other.state == unitIdle || other.state == unitDone {
			continue
		}
		if other.left == 0 || other.state == unitStopping || other.plan.Service == u.plan.Service {
			return false
		}
		for _, d := range u.plan.Devices {
			if slices.Contains(other.plan.Devices, d) {
				return false
			}
		}
	}
	return true
}

func (l *loop) startUnit(u *unitState) {
	u.state = unitStarting
	u.attempt = l.kept.attempts[u.plan.ID] + 1
	u.logDir = filepath.Join(l.workDir, "services", fmt.Sprintf("%s-%d", u.plan.ID, u.attempt))
	if err := l.journal.write(journalEvent{Event: "unit_start", Time: l.Now(), Unit: u.plan.ID, Attempt: u.attempt}); err != nil {
		l.fatal = firstErr(l.fatal, err)
		u.state = unitDone
		return
	}
	l.event(Event{Type: "service_start", Unit: u.plan.ID, Text: u.plan.Engine})
	l.pending++
	started, views := l.Now(), l.views(u.plan.Needs)
	go func() {
		live, err := l.launch(l.ctx, u, views)
		res := result{unit: u.plan.ID, service: schemas.ServiceRecord{
			Unit: u.plan.ID, Service: u.plan.Service, Engine: u.plan.Engine, Attempt: u.attempt, StartedAt: started, Models: []string{}}}
		if err != nil {
			res.cause = err
			res.service.Status, res.service.Error, res.service.EndedAt = "failed_to_start", l.hideSecrets(err.Error()), l.Now()
			res.err = l.storeLogs(u, &res.service)
			res.ended = true
		} else {
			u.live = live
			view := live.View()
			res.service.URL, res.service.Models = view.URL, append(res.service.Models, view.Models...)
		}
		l.results <- res
	}()
}

// views are the services of these lifetimes that are up now.
func (l *loop) views(units []string) map[string]ServiceView {
	m := map[string]ServiceView{}
	for _, id := range units {
		if u := l.units[id]; u.state == unitUp {
			view := u.live.View()
			view.Uses = u.uses
			m[u.plan.Service] = view
		}
	}
	return m
}

func (l *loop) launch(ctx context.Context, u *unitState, views map[string]ServiceView) (Service, error) {
	def := l.Experiment.Service[u.plan.Service]
	var point map[string]any
	if len(u.plan.Trials) > 0 {
		point = l.trials[u.plan.Trials[0]].Point
	}
	made := newCopies(l.Store, filepath.Join(l.workDir, "units", u.plan.ID))
	res := &resolver{runner: l.runner, node: l.nodes[u.plan.Nodes[0]], params: trialParams(l.Experiment, point), views: views, copies: made, secrets: true}
	config, err := res.fields(ctx, engineFields(def.Engine), def.Config)
	if err != nil {
		return nil, err
	}
	if key, ok := config[schemas.FieldAPIKey].(string); ok {
		if _, err := schemas.NewAPIKey(key); err != nil {
			return nil, fmt.Errorf("%s: %w", schemas.FieldAPIKey, err)
		}
		config[schemas.FieldAPIKey] = strings.TrimSpace(key)
	}
	if err := made.fill(ctx); err != nil {
		return nil, err
	}
	env := map[string]string{}
	maps.Copy(env, stringMap(config["env"]))
	for k, v := range l.Machine.ServiceEnv[u.plan.Service] {
		s, err := res.text(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("machine file: service %s: env %s: %w", u.plan.Service, k, err)
		}
		env[k] = s
	}
	if err := durable.MkdirAll(u.logDir); err != nil {
		return nil, err
	}
	launch := ServiceLaunch{Unit: u.plan.ID, Service: u.plan.Service, Engine: def.Engine, Config: config, Env: env, LogDir: u.logDir, Token: l.token, WorkDir: u.logDir + ".files", ModelPaths: l.modelPaths(ctx, res)}
	if err := durable.MkdirAll(launch.WorkDir); err != nil {
		return nil, err
	}
	if len(sourcePaths(def.Config)) > 0 {
		launch.SourceArchive = l.SourceArchive
	}
	launch.Secrets = l.secretValues()
	return l.StartService(ctx, launch)
}

// modelPaths are the checkpoints that are known on this machine.
func (l *loop) modelPaths(ctx context.Context, v *resolver) map[string]string {
	paths := maps.Clone(l.Machine.Checkpoints)
	if paths == nil {
		paths = map[string]string{}
	}
	for _, id := range slices.Sorted(maps.Keys(l.Experiment.Model)) {
		m := l.Experiment.Model[id]
		if m.Checkpoint == "" {
			continue
		}
		name, err := v.text(ctx, m.Name)
		path, pathErr := v.text(ctx, m.Checkpoint)
		if err == nil && pathErr == nil {
			paths[name] = l.abs(path)
		}
	}
	return paths
}

// stopUnits ends services whose work is done, or all of them once the run is
// interrupted or cannot go on and nothing uses them.
func (l *loop) stopUnits() {
	giveUp := (l.fatal != nil || l.ctx.Err() != nil) && l.running == 0
	for _, p := range l.Plan.Services {
		u := l.units[p.ID]
		if u.state == unitIdle && u.left == 0 {
			u.state = unitDone
		}
		if u.state != unitUp || (u.left > 0 && !giveUp) || l.neededBy(u) {
			continue
		}
		u.state = unitStopping
		l.pending++
		go func() { l.results <- l.endUnit(u) }()
	}
}

// neededBy says whether a service that is still up needs this one.
func (l *loop) neededBy(u *unitState) bool {
	for _, other := range l.units {
		if slices.Contains(other.plan.Needs, u.plan.ID) && other.state != unitIdle && other.state != unitDone {
			return true
		}
	}
	return false
}

func (l *loop) endUnit(u *unitState) result {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	end := u.live.Stop(ctx)
	rec := u.record
	rec.Status, rec.Error, rec.ExitCode, rec.Argv, rec.ReadyMs, rec.EndedAt = end.Status, l.hideSecrets(end.Error), end.ExitCode, end.Argv, end.ReadyMs, l.Now()
	rec.Attached, rec.Config = end.Status == "detached", end.Config
	res := result{unit: u.plan.ID, ended: true, service: rec}
	res.err = l.storeLogs(u, &res.service)
	return res
}

func (l *loop) storeLogs(u *unitState, rec *schemas.ServiceRecord) error {
	if err := l.redact(u.logDir); err != nil {
		return &InfraError{"redact the log of service " + u.plan.Service, err}
	}
	_, blob, err := l.Store.PutTree(context.Background(), u.logDir)
	if err != nil {
		return &InfraError{"store the log of service " + u.plan.Service, err}
	}
	rec.Tree, rec.Path = blob, "services/"+u.plan.ID
	return errors.Join(removeAll(u.logDir+".files"), removeAll(u.logDir))
}

func (l *loop) takeUnit(res result) {
	u := l.units[res.unit]
	u.record = res.service
	if res.err != nil {
		l.fatal = firstErr(l.fatal, res.err)
	}
	if !res.ended {
		u.state = unitUp
		l.event(Event{Type: "service_ready", Unit: res.unit, Text: res.service.URL})
		return
	}
	u.state = unitDone
	u.failure = firstText(res.service.Error, u.failure)
	l.services = append(l.services, res.service)
	l.serviceFinding(res.service)
	if err := l.journal.write(journalEvent{Event: "unit_end", Time: l.Now(), Unit: res.unit, Service: &res.service}); err != nil {
		l.fatal = firstErr(l.fatal, err)
	}
	l.event(Event{Type: "service_end", Unit: res.unit, Text: res.service.Status})
}

func (l *loop) serviceFinding(rec schemas.ServiceRecord) {
	f := schemas.Finding{Severity: schemas.SeverityError, Subject: "service " + rec.Service, Message: rec.Error}
	switch rec.Status {
	case "died":
		f.ID, f.Remedy = "service.died", "read "+rec.Path+"/service.log in the run"
	case "failed_to_start":
		f.ID, f.Remedy = "service.start", "read "+rec.Path+"/service.log in the run"
	case "killed":
		f.ID, f.Severity, f.Remedy = "service.killed", schemas.SeverityWarning, "raise stop_grace if it needs longer to stop"
	default:
		return
	}
	l.findings = append(l.findings, f)
	l.event(Event{Type: "finding", Unit: rec.Unit, Finding: &f})
}

// failNode ends a node that could not run because of its service.
func (l *loop) failNode(n schemas.Node, why string) {
	now := l.Now()
	rec := l.baseRecord(n)
	rec.Status, rec.Error, rec.StartedAt, rec.EndedAt = schemas.StageFailed, why, now, now
	if err := l.store(n, rec, nil, result{}); err != nil {
		l.fatal = firstErr(l.fatal, err)
	}
	l.finishNode(n)
}

func engineFields(engine string) []schemas.Field {
	fields, _ := schemas.EngineFields(engine)
	return fields
}

func stringMap(v any) map[string]string {
	out := map[string]string{}
	m, _ := v.(map[string]any)
	for k, x := range m {
		if s, ok := x.(string); ok {
			out[k] = s
		}
	}
	return out
}
