package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"assay/schemas"
)

// fail reports what the stage fails for, and returns it as its error.
func (l *load) fail(f schemas.Finding) error {
	f.Severity = schemas.SeverityError
	l.task.Report(f)
	return fmt.Errorf("%s: %s", f.Subject, f.Message)
}

// refused is a deploy call that was not answered with 200 and an object.
func (l *load) refused(model string, d *schemas.LoadDeploy) error {
	remedy := "see the answers output and the service's log"
	switch d.HTTPStatus {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		remedy = "compare the stage's keys with what the service knows: names of models and nodes, and, for a model that is not configured, its path"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		remedy = "the service has no deploy endpoint: say via = \"startup\" and name the models in its start-up list"
	case http.StatusInsufficientStorage:
		remedy = "no replica is left: the cache of weights in host memory is too small or in pieces (model_cache_size_gb)"
	}
	return l.fail(schemas.Finding{ID: "load.deploy-refused", Subject: "model " + model, Message: "deploy: " + outcomeOf(d.HTTPStatus, d.Error), Remedy: remedy})
}

// partial is a deployment that failed on some nodes.
func (l *load) partial(model string, d *schemas.LoadDeploy) error {
	f := schemas.Finding{ID: "load.deploy-partial", Severity: schemas.SeverityWarning, Subject: "model " + model,
		Message: fmt.Sprintf("deploy: status %q, ready on %d nodes, failed: %s", d.Status, len(d.ReadyNodes), firstText(failureText(d.Failed), "the service does not say where")),
		Remedy:  "mend the nodes that failed, or say allow_partial = true to go on with the rest"}
	if l.set.Bool("allow_partial") && len(d.ReadyNodes) > 0 {
		l.task.Report(f)
		return nil
	}
	return l.fail(f)
}

func (l *load) cleanFailures(list []schemas.LoadFailure) []schemas.LoadFailure {
	for i := range list {
		f := &list[i]
		f.Node, f.Status, f.Error = l.talk.short(f.Node), l.talk.short(f.Status), l.talk.short(f.Error)
	}
	return list
}

// failedRequest is the stage's error for an exact request that was not answered so.
func (l *load) failedRequest(ctx context.Context, err error) error {
	var failed *requestError
	if !errors.As(err, &failed) {
		return err
	}
	if l.task.Service.Dead != nil {
		if why := l.task.Service.Dead(); why != "" {
			return fmt.Errorf("service %s died while it was loaded: %s: %w", l.task.Service.Name, why, err)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	r := failed.rec
	f := schemas.Finding{ID: "load.request-failed", Subject: "model " + r.Model, Message: fmt.Sprintf("request %d ended with %s: %s", r.Index, r.Outcome, l.talk.short(firstText(r.Error, "no more is known"))), Remedy: "see the record, and the service's log"}
	if r.Outcome == schemas.OutcomeLengthMismatch {
		got := "an unknown number of"
		if r.OutputTokens != nil {
			got = fmt.Sprint(*r.OutputTokens)
		}
		f.ID, f.Message = "load.wrong-length", fmt.Sprintf("request %d was asked for exactly %d tokens and got %s", r.Index, r.AskedOutputTokens, got)
		f.Remedy = "the service ignores ignore_eos, or the sequence meets its limit: say hold = \"min_tokens\" for the service, or ask for fewer"
	}
	return l.fail(f)
}

// undeployAll undeploys what the stage is told to, and waits until it is gone.
func (l *load) undeployAll(ctx context.Context) error {
	for _, model := range l.undeploy {
		u, err := l.undeployOne(ctx, model)
		l.sum.Undeployed = append(l.sum.Undeployed, u)
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *load) undeployOne(ctx context.Context, model string) (schemas.LoadUndeploy, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.set.Duration("ready_timeout"), errLate)
	defer cancel()
	began := time.Now()
	u := schemas.LoadUndeploy{Model: model, RemainingNodes: []string{}, Failed: []schemas.LoadFailure{}}
	failed := func(why string) (schemas.LoadUndeploy, error) {
		u.Error = why
		return u, l.fail(schemas.Finding{ID: "load.undeploy-failed", Subject: "model " + model, Message: "undeploy: " + outcomeOf(u.HTTPStatus, why), Remedy: "see the answers output and the service's log"})
	}
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		status, body, err := l.talk.call(ctx, http.MethodPost, undeployPath, map[string]any{"model": model})
		u.Calls, u.HTTPStatus = u.Calls+1, status
		if err := l.talk.archive("undeploy", model, status, body, err); err != nil {
			return u, err
		}
		switch {
		case err != nil:
			return failed(l.talk.short(err.Error()))
		case status != http.StatusOK:
			return failed(l.talk.short(refusal(body)))
		}
		a, err := parseAnswer(body)
		if err != nil {
			return failed(l.talk.short(err.Error()))
		}
		u.Status, u.RemainingNodes, u.Failed = l.talk.short(a.status), a.remaining, l.cleanFailures(a.failed)
		if a.status == "ok" && len(a.failed) == 0 && len(a.remaining) == 0 {
			u.Ms = ms(time.Since(began))
			return u, nil
		}
		if len(a.failed) > 0 && !draining(a.failed) {
			return failed(failureText(u.Failed))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return failed("it is still on some nodes when ready_timeout is over: " + failureText(u.Failed))
		}
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
