package emulated

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"assay/internal/serving"
)

const (
	// keptEvents is how many events a new listener is told of.
	keptEvents = 1000
	// eventPause lies between two looks at what a listener is to be told.
	eventPause = 250 * time.Millisecond
	keepAlive  = 15 * time.Second
)

// runtimeEvent is something that happened, as the API tells it.
type runtimeEvent struct {
	Sequence  uint64  `json:"sequence"`
	Timestamp float64 `json:"timestamp"` // Unix time, s
	Type      string  `json:"type"`
	Model     string  `json:"model,omitempty"`
	Node      string  `json:"node_id,omitempty"`
	Engine    *int    `json:"engine,omitempty"`
	To        *int    `json:"to_engine,omitempty"`
	Reason    string  `json:"reason,omitempty"`
}

// eventLog keeps the last events.
type eventLog struct {
	mu     sync.Mutex
	next   uint64
	events []runtimeEvent
}

func (l *eventLog) add(e runtimeEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	e.Sequence = l.next
	if len(l.events) == keptEvents {
		l.events = append(l.events[:0], l.events[1:]...)
	}
	l.events = append(l.events, e)
}

// after returns what came after an event's number.
func (l *eventLog) after(seq uint64) []runtimeEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []runtimeEvent{}
	for _, e := range l.events {
		if e.Sequence > seq {
			out = append(out, e)
		}
	}
	return out
}

// observe takes an event of the system. Single steps are not kept.
func (a *aegaeonState) observe(e serving.Event) {
	out := runtimeEvent{Timestamp: seconds(a.s.live.system.Wall().At(e.AtMs)), Type: string(e.Kind), Model: a.s.live.name(e.Model)}
	switch e.Kind {
	case serving.EventRoute:
		out.Node = nodeName(e.Node)
	case serving.EventSwitch:
		out.Engine = &e.Worker
	case serving.EventSteal:
		out.Model, out.Engine, out.Reason = "", &e.Worker, string(e.Why)
		if e.Why == "" {
			out.To = &e.To
		}
	case serving.EventFinish, serving.EventFail, serving.EventCapture, serving.EventReplay:
	default:
		return
	}
	a.events.add(out)
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// snapshot is the answer of the runtime endpoint.
func (a *aegaeonState) snapshot(sys *serving.System) map[string]any {
	cluster := sys.Cluster()
	events := a.events.after(0)
	out := map[string]any{
		"timestamp":                     seconds(time.Now()),
		"model_placement_policy":        a.s.config.Serving.Text("placement"),
		"request_routing_policy":        cluster.Routing.Policy,
		"model_placement_stats":         a.placementStats(cluster),
		"model_placements":              a.placements(sys),
		"request_routing":               a.routing(cluster.Routing),
		"engines":                       a.engines(sys),
		"events":                        events,
		"work_stealing":                 stealing(cluster.Stealing),
		"decode_load":                   decodeLoad(cluster),
		"nodes":                         a.nodes(sys),
		"last_model_placement_decision": nil,
	}
	if ranking := sys.Decision(); len(ranking) > 0 {
		list := []any{}
		for _, c := range ranking {
			list = append(list, map[string]any{
				"node_id": nodeName(c.Node), "fits_without_eviction": c.Fits, "eviction_feasible": c.CanEvict,
				"estimated_evicted_bytes": c.EvictBytes, "estimated_evicted_models": c.EvictModels,
				"controller_active": c.Active, "api_outstanding": c.Outstanding, "effective_load": c.Load(),
				"free_cache_bytes": c.FreeBytes, "cached_models": c.CachedModels,
			})
		}
		out["last_model_placement_decision"] = map[string]any{"policy": a.s.config.Serving.Text("placement"), "candidates": list}
	}
	return out
}

func (a *aegaeonState) placementStats(c serving.Cluster) any {
	byNode := map[string]any{}
	for i, s := range c.PlacementNodes {
		byNode[nodeName(i)] = s
	}
	return map[string]any{"total": c.Placement, "by_node": byNode}
}

// placements is by model, then by node, absent ones left out.
func (a *aegaeonState) placements(sys *serving.System) any {
	out := map[string]any{}
	for i, name := range a.s.live.names() {
		byNode := map[string]any{}
		for node := range a.s.config.nodes() {
			state, err := sys.Replica(node, i)
			if state == serving.ReplicaAbsent {
				continue
			}
			entry := map[string]any{"state": state, "error": nil}
			if err != nil {
				entry["error"] = err.Error()
			}
			byNode[nodeName(node)] = entry
		}
		out[name] = byNode
	}
	return out
}

func (a *aegaeonState) routing(r serving.RoutingStats) any {
	byNode, cumulative, byModel := map[string]int{}, map[string]int64{}, map[string]any{}
	var total int64
	for i := range r.ByNode {
		byNode[nodeName(i)], cumulative[nodeName(i)] = r.ByNode[i], r.Cumulative[i]
		total += r.Cumulative[i]
	}
	for m, counts := range r.ByModel {
		split := map[string]int64{}
		for i, n := range counts {
			split[nodeName(i)] = n
		}
		byModel[a.s.live.name(m)] = split
	}
	return map[string]any{
		"policy": r.Policy, "total": r.Total, "by_node": byNode,
		"cumulative_assignments": map[string]any{"total": total, "by_node": cumulative, "by_model": byModel},
	}
}

func stealing(s serving.StealStats) any {
	rejected := map[string]int{string(serving.StealInternal): 0}
	for why, n := range s.Rejections {
		rejected[string(why)] = n
	}
	return map[string]any{"enabled": s.Enabled, "min_batch_gap": s.MinGap, "attempts": s.Attempts, "successes": s.Successes, "rejections": rejected}
}

func decodeLoad(c serving.Cluster) any {
	engines := []any{}
	for _, l := range c.Decode {
		engines = append(engines, map[string]any{
			"engine": l.Worker, "node_id": nodeName(l.NodeIndex), "output_tokens": l.OutputTokens, "active_seconds": float64(l.ActiveMs) / 1000,
			"decode_steps": l.Steps, "rounds_completed": l.Rounds, "turns_completed": l.Turns, "model_switches": l.Switches,
			"work_steals_donated": l.Donated, "work_steals_received": l.Received,
			"queued_batches": l.Batches, "queued_requests": l.Requests, "queued_tokens": l.KVTokens,
		})
	}
	return map[string]any{"engines": engines, "output_tokens_cv": c.OutputTokensCV, "active_seconds_cv": c.ActiveCV}
}

func (a *aegaeonState) engines(sys *serving.System) []any {
	out := []any{}
	for _, e := range sys.EngineStates() {
		var loaded any
		if e.Loaded >= 0 {
			loaded = a.s.live.name(e.Loaded)
		}
		out = append(out, map[string]any{"engine": e.ID, "node_id": nodeName(e.Node), "type": e.Sort, "model": loaded, "busy": e.Busy, "queued_requests": e.Queued})
	}
	return out
}

func (a *aegaeonState) nodes(sys *serving.System) []any {
	out := []any{}
	for i, n := range sys.Nodes() {
		models := []string{}
		for _, m := range n.Cached {
			models = append(models, a.s.live.name(m))
		}
		out = append(out, map[string]any{
			"node_id": nodeName(i), "request_load": n.Active,
			"model_cache": map[string]any{"total_bytes": n.CacheBytes, "free_bytes": n.CacheFree, "used_bytes": n.CacheBytes - n.CacheFree, "models": models},
		})
	}
	return out
}

func (a *aegaeonState) runtime(w http.ResponseWriter, _ *http.Request) {
	var out map[string]any
	if err := a.s.live.system.Do(func(sys *serving.System) { out = a.snapshot(sys) }); err != nil {
		writeDetail(w, errNotReady)
		return
	}
	writeJSON(w, http.StatusOK, out)
}

// stream tells a listener of engines and events, whenever something has changed.
func (a *aegaeonState) stream(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w)
	var seq uint64
	var told []byte
	last := time.Now()
	for {
		var engines []any
		if err := a.s.live.system.Do(func(sys *serving.System) { engines = a.engines(sys) }); err != nil {
			return
		}
		events := a.events.after(seq)
		state := encode(engines)
		var b []byte
		switch {
		case len(events) > 0 || !bytes.Equal(state, told):
			b = append(append([]byte("event: runtime\ndata: "), encode(map[string]any{"engines": engines, "events": events})...), "\n\n"...)
		case time.Since(last) >= keepAlive:
			b = []byte(": keep-alive\n\n")
		}
		if len(events) > 0 {
			seq = events[len(events)-1].Sequence
		}
		if told = state; len(b) > 0 {
			last = time.Now()
			if _, err := w.Write(b); err != nil || flush.Flush() != nil {
				return // nobody listens any more
			}
		}
		if !waitUntil(r.Context(), time.Now().Add(eventPause)) {
			return
		}
	}
}

// metrics tells of what was asked for over the last minute.
func (a *aegaeonState) metrics(w http.ResponseWriter, _ *http.Request) {
	now := time.Now()
	limits := map[string]any{"max_requests_per_second": nil, "max_tokens_per_second": nil}
	if l := a.s.config.Limits; l != nil {
		if l.RequestsPerSecond > 0 {
			limits["max_requests_per_second"] = l.RequestsPerSecond
		}
		if l.TokensPerSecond > 0 {
			limits["max_tokens_per_second"] = l.TokensPerSecond
		}
	}
	per := map[string]any{}
	a.mu.Lock()
	for name, m := range a.models {
		requests, tokens := m.asked.sum(now)
		per[name] = map[string]any{"requests": requests, "tokens": tokens, "requests_per_second": float64(requests) / windowSeconds, "tokens_per_second": float64(tokens) / windowSeconds}
	}
	a.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"timestamp": seconds(now), "window_seconds": windowSeconds, "limits": limits, "metrics": per})
}

// Watts that a device is said to draw, at work and idle.
const (
	wattsBusy = 350.0
	wattsIdle = 70.0
)

// power tells of made-up devices, one for each engine.
func (a *aegaeonState) power(w http.ResponseWriter, _ *http.Request) {
	gpus := []any{}
	if err := a.s.live.system.Do(func(sys *serving.System) {
		now := seconds(time.Now())
		for _, e := range sys.EngineStates() {
			watts, used := wattsIdle, 0
			if e.Busy {
				watts, used = wattsBusy, 100
			}
			gpus = append(gpus, map[string]any{"index": e.ID, "timestamp": now, "power_w": watts, "sm_clock_mhz": 1980, "mem_clock_mhz": 2619, "utilization_gpu_pct": used})
		}
	}); err != nil {
		writeDetail(w, errNotReady)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"gpus": gpus})
}
