package pipeline

import (
	"context"
	"errors"

	"assay/internal/fingerprint"
	"assay/internal/statcache"
	"assay/schemas"
)

// identifyModels tells what is known of the experiment's models as a trial sees
// them. A checkpoint is read once.
func (r *runner) identifyModels(ctx context.Context, params map[string]any) []ModelIdentity {
	ids := make([]string, 0, len(r.Experiment.Model))
	for id := range r.Experiment.Model {
		ids = append(ids, id)
	}
	sortStrings(ids)
	list := make([]ModelIdentity, 0, len(ids))
	for _, id := range ids {
		list = append(list, r.identifyModel(ctx, id, params))
	}
	return list
}

func (r *runner) identifyModel(ctx context.Context, id string, params map[string]any) ModelIdentity {
	m := r.Experiment.Model[id]
	mi := ModelIdentity{ID: id, Name: m.Name, Level: m.Level()}
	v := &resolver{runner: r, params: params}
	if name, err := v.text(ctx, m.Name); err == nil {
		mi.Name = name
	}
	if m.Checkpoint == "" {
		mi.Unknown = "the experiment names no checkpoint"
		return mi
	}
	path, err := v.text(ctx, m.Checkpoint)
	if err == nil {
		mi.Fingerprint, err = r.fingerprint(ctx, r.abs(path), mi.Level)
	}
	if err != nil {
		mi.Unknown = err.Error()
	}
	return mi
}

// fingerprint computes a checkpoint's fingerprint once a run, and reads weights only
// where the cache of inputs does not know them.
func (r *runner) fingerprint(ctx context.Context, path, level string) (schemas.Digest, error) {
	at := level + "\x00" + path
	r.mu.Lock()
	known, ok := r.prints[at]
	r.mu.Unlock()
	if ok && known.Unknown != "" {
		return "", errors.New(known.Unknown)
	}
	if ok {
		return known.Fingerprint, nil
	}
	cache := r.inputCache()
	var files *statcache.Files
	if cache != nil {
		files = cache.files
	}
	d, err := fingerprint.Of(ctx, path, level, files)
	if err != nil && ctx.Err() != nil {
		return "", err // of this call, not of the checkpoint
	}
	known.Fingerprint = d
	if err != nil {
		known.Unknown = err.Error()
	}
	if cache != nil && cache.write && level == fingerprint.Full {
		_ = cache.files.Save() // costs the next run a reading
	}
	r.mu.Lock()
	r.prints[at] = known
	r.mu.Unlock()
	return d, err
}
