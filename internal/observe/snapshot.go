package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"assay/internal/durable"
	"assay/schemas"
)

// Files of a service's own account of its state.
const (
	SnapshotBeforeFile = "snapshot-before.json"
	SnapshotAfterFile  = "snapshot-after.json"
)

const maxSnapshotBytes = 64 << 20

// snapshots takes the service's state before the first request and after the last
// answer. Counters in it are cumulative: the difference is the run's.
type snapshots struct {
	ep   *endpoint
	path string
	dir  string
	hide func(string) string
	st   *schemas.ObservedSource
	// routed is request_routing.total before and after: requests the service has
	// assigned and not finished.
	routed stats
	failed error // of writing
}

func (s *snapshots) before(ctx context.Context) error {
	return s.take(ctx, SnapshotBeforeFile, beforeAll)
}

func (s *snapshots) look(context.Context, when) error { return nil }

func (s *snapshots) after(ctx context.Context) error { return s.take(ctx, SnapshotAfterFile, afterAll) }

func (s *snapshots) take(ctx context.Context, file string, w when) error {
	body, err := s.ep.get(ctx, s.path, maxSnapshotBytes)
	if err != nil {
		return err
	}
	state, err := ParseSnapshot(body)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(s.dir, file), []byte(s.hide(string(body))), 0o644); err != nil {
		s.failed = err
		return &writeError{err}
	}
	s.st.Files = append(s.st.Files, file)
	if state.Routed != nil {
		s.routed.take(w, *state.Routed)
	}
	return nil
}

// Snapshot is what is read of a runtime snapshot. The rest is kept as it came.
type Snapshot struct {
	// Routed is request_routing.total, nil where it is not told.
	Routed *float64
}

// ParseSnapshot reads a JSON object leniently: a field that is missing or of
// another type is not told.
func ParseSnapshot(b []byte) (Snapshot, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(b, &top); err != nil {
		return Snapshot{}, fmt.Errorf("not a JSON object: %w", err)
	}
	if top == nil {
		return Snapshot{}, errors.New("not a JSON object: null")
	}
	var s Snapshot
	var routing map[string]json.RawMessage
	if json.Unmarshal(top["request_routing"], &routing) == nil {
		var total *float64
		if json.Unmarshal(routing["total"], &total) == nil {
			s.Routed = total
		}
	}
	return s, nil
}

func (s *snapshots) finish() error {
	s.ep.close()
	return s.failed
}

func (s *snapshots) summarize(out *schemas.Observed) {
	row := schemas.ObservedSeries{Name: "routed_requests", Unit: "requests", Kind: "gauge", Source: s.st.Name, File: SnapshotBeforeFile, Metric: "request_routing.total"}
	if s.routed.seen {
		row.Unknown = "only known before and after"
	} else {
		row.Unknown = "the snapshot does not tell request_routing.total"
	}
	s.routed.fill(&row)
	out.Series = append(out.Series, row)
}
