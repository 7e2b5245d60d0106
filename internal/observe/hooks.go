package observe

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"assay/schemas"
)

const maxHookBytes = 1 << 20

// reset sends the requests that empty caches. The error is that of one which
// fails the stage; the others that failed are findings.
func (r *Recorder) reset(ctx context.Context) error {
	st := r.source("reset", len(r.opts.Config.Resets) > 0)
	if st.Status == schemas.ObservedOff {
		return nil
	}
	ep, err := r.opts.endpoint(r.opts.Config.Timeout)
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	defer ep.close()
	var asked []string
	for _, h := range r.opts.Config.Resets {
		what := h.Method + " " + h.Path
		asked = append(asked, what)
		_, err := ep.do(ctx, h.Method, h.Path, h.Status, maxHookBytes)
		if err == nil {
			st.Looks++
			continue
		}
		err = fmt.Errorf("%s: want status %d: %w", what, h.Status, err)
		st.Errors++
		st.LastError = r.opts.Hide(err.Error())
		if h.Fail {
			return fmt.Errorf("reset: %w", err)
		}
		r.find("observe.reset", schemas.SeverityWarning, "read in the service's documents how its caches are emptied: they may still hold what earlier requests left", "reset: %s", st.LastError)
	}
	st.From = strings.Join(asked, ", ")
	if st.Errors > 0 {
		st.Status, st.Unknown = schemas.ObservedUnknown, fmt.Sprintf("%d of %d resets failed: %s", st.Errors, len(asked), st.LastError)
	}
	return nil
}

// startProfile begins a profile. Its failure fails the stage, which was asked for one.
func (r *Recorder) startProfile(ctx context.Context) error {
	st := r.source("profile", r.opts.Config.Profile)
	if st.Status == schemas.ObservedOff {
		return nil
	}
	st.From = "/start_profile, /stop_profile"
	if err := r.profileHook(ctx, "/start_profile"); err != nil {
		return err
	}
	r.profiling = st
	st.Looks++
	r.find("result.profiled", schemas.SeverityWarning, "measure without a profile for figures that are meant", "the service was profiled meanwhile: latencies and rates are diagnostic")
	return nil
}

func (r *Recorder) profileHook(ctx context.Context, path string) error {
	ep, err := r.opts.endpoint(r.opts.Config.ProfileTimeout)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer ep.close()
	if _, err := ep.do(ctx, http.MethodPost, path, http.StatusOK, maxHookBytes); err != nil {
		return fmt.Errorf("profile: POST %s: %w; many servers have it only when started for it", path, err)
	}
	return nil
}

// stopProfile ends the profile that was begun, also when ctx has ended.
func (r *Recorder) stopProfile(ctx context.Context) {
	if r.profiling == nil {
		return
	}
	st := r.profiling
	r.profiling = nil
	limit := r.opts.Config.ProfileTimeout
	if ctx.Err() != nil {
		limit = min(limit, 10*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if err := r.profileHook(ctx, "/stop_profile"); err != nil {
		st.Errors++
		st.LastError = r.opts.Hide(err.Error())
		st.Status, st.Unknown = schemas.ObservedUnknown, "the profile may not be whole: "+st.LastError
		r.find("observe.profile", schemas.SeverityWarning, "look whether the service still profiles before it is measured again", "%s", st.LastError)
		return
	}
	st.Looks++
}
