package serving

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"assay/schemas"
)

// Policies are the names of the policies.
var Policies = []string{PolicyServerlessLLM, PolicyServerlessLLMPlus, PolicyAegaeon}

// The policies.
const (
	// PolicyServerlessLLM places whole requests, in order of arrival.
	PolicyServerlessLLM = "serverlessllm"
	// PolicyServerlessLLMPlus orders batches by estimated time, with oracle lengths.
	PolicyServerlessLLMPlus = "serverlessllm-plus"
	// PolicyAegaeon switches models between tokens, prefill and decode apart.
	PolicyAegaeon = "aegaeon"
)

// BatchTerm says which batch size enters the decode fit.
type BatchTerm string

// The batch terms.
const (
	// BatchActual is the true batch size.
	BatchActual BatchTerm = "actual"
	// BatchArtifact is -1 for every batch, as the published artifact has it.
	BatchArtifact BatchTerm = "artifact"
)

// Served is a model that requests name: an alias of a base model.
type Served struct {
	Name string
	Base BaseModel
	Fit  Fit
}

// Config describes a serving system. The zero values of the optional fields mean
// what the published artifact does.
type Config struct {
	Device    Device
	Models    []Served
	Workers   int
	Policy    string
	BatchTerm BatchTerm // default: BatchActual
	// PrefillWorkers is how many of the workers prefill, under PolicyAegaeon.
	PrefillWorkers int
	// BandwidthGBps between host and device; default 16.
	BandwidthGBps float64
	// SwitchOverheadMs is added to every switch of models.
	SwitchOverheadMs int64
	// PatienceMs is after how long a request without a token fails; default 15,000.
	PatienceMs int64
	// TPOTTargetS steers the quotas of PolicyAegaeon; default 0.1.
	TPOTTargetS float64
	// WorkStealing lets idle decode workers of PolicyAegaeon take batches over;
	// StealMinGap is the least difference of batches; default MinStealGap.
	WorkStealing bool
	StealMinGap  int
	// Nodes share the workers, and the prefill workers, out evenly; default 1. A
	// request stays on one node.
	Nodes int
	// Replicas is on how many nodes a model is placed; default 1.
	Replicas int
	// Routing chooses among a model's nodes; default RouteLeastOutstanding.
	Routing string
	// Placement chooses a model's nodes; default PlaceLeastLoaded.
	Placement string
	// ModelCacheGB is the host memory of a node for weights; 0 holds all models.
	ModelCacheGB float64
	// LoadGBps fills a node's cache when a model is deployed while the system runs; 0
	// takes no time.
	LoadGBps float64
	// Undeployed models are on no node until they are deployed.
	Undeployed []int
	// Graphs of decode steps, under PolicyAegaeon; nil for none.
	Graphs *Graphs
}

const (
	defaultBandwidth  = 16
	defaultPatienceMs = 15_000
	defaultTPOTS      = 0.1
	maxWorkers        = 10_000
	maxMs             = int64(1) << 50
)

func (c Config) withDefaults() Config {
	if c.BatchTerm == "" {
		c.BatchTerm = BatchActual
	}
	if c.BandwidthGBps == 0 {
		c.BandwidthGBps = defaultBandwidth
	}
	if c.PatienceMs == 0 {
		c.PatienceMs = defaultPatienceMs
	}
	if c.TPOTTargetS == 0 {
		c.TPOTTargetS = defaultTPOTS
	}
	c.StealMinGap = cmp.Or(c.StealMinGap, MinStealGap)
	c.Nodes, c.Replicas = cmp.Or(c.Nodes, 1), cmp.Or(c.Replicas, 1)
	c.Routing, c.Placement = cmp.Or(c.Routing, RouteLeastOutstanding), cmp.Or(c.Placement, PlaceLeastLoaded)
	return c
}

// Check says what is wrong with everything but the models.
func (c Config) Check() error {
	c = c.withDefaults()
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	switch {
	case !slices.Contains(Policies, c.Policy):
		return fmt.Errorf("policy %q: want one of %s", c.Policy, strings.Join(Policies, ", "))
	case c.Workers < 1 || c.Workers > maxWorkers:
		return fmt.Errorf("workers = %d: want 1 to %d", c.Workers, maxWorkers)
	case c.BatchTerm != BatchActual && c.BatchTerm != BatchArtifact:
		return fmt.Errorf("batch term %q: want %s or %s", c.BatchTerm, BatchActual, BatchArtifact)
	case !positive(c.BandwidthGBps):
		return fmt.Errorf("bandwidth of %s GB/s: want more than 0", schemas.Decimal(c.BandwidthGBps))
	case !positive(c.TPOTTargetS):
		return fmt.Errorf("tpot target of %s s: want more than 0", schemas.Decimal(c.TPOTTargetS))
	case c.SwitchOverheadMs < 0 || c.SwitchOverheadMs > maxMs || c.PatienceMs < 0 || c.PatienceMs > maxMs:
		return fmt.Errorf("switch overhead %d ms and patience %d ms: want 0 or more", c.SwitchOverheadMs, c.PatienceMs)
	case c.Policy == PolicyAegaeon && (c.PrefillWorkers < 1 || c.PrefillWorkers >= c.Workers):
		return fmt.Errorf("%d prefill workers of %d: policy %s wants at least one, and one left to decode", c.PrefillWorkers, c.Workers, c.Policy)
	case c.Policy != PolicyAegaeon && c.PrefillWorkers != 0:
		return fmt.Errorf("policy %s has no prefill workers: leave them out", c.Policy)
	case c.Policy != PolicyAegaeon && c.WorkStealing:
		return fmt.Errorf("policy %s has no decode workers that could steal: leave work stealing out", c.Policy)
	case c.StealMinGap < MinStealGap:
		return fmt.Errorf("least gap of batches to steal = %d: want %d or more", c.StealMinGap, MinStealGap)
	}
	return c.checkNodes()
}

func (c Config) checkNodes() error {
	switch {
	case c.Nodes < 1 || c.Nodes > c.Workers:
		return fmt.Errorf("nodes = %d: want 1 to %d, the number of workers", c.Nodes, c.Workers)
	case c.Workers%c.Nodes != 0 || c.PrefillWorkers%c.Nodes != 0:
		return fmt.Errorf("%d workers, %d of which prefill, cannot be shared out over %d nodes evenly: change one of the numbers", c.Workers, c.PrefillWorkers, c.Nodes)
	case c.Replicas < 1 || c.Replicas > c.Nodes:
		return fmt.Errorf("replicas = %d: want 1 to %d, the number of nodes", c.Replicas, c.Nodes)
	case !slices.Contains(RoutingPolicies, c.Routing):
		return fmt.Errorf("routing policy %q: want one of %s", c.Routing, strings.Join(RoutingPolicies, ", "))
	case !slices.Contains(PlacementPolicies, c.Placement):
		return fmt.Errorf("placement policy %q: want one of %s", c.Placement, strings.Join(PlacementPolicies, ", "))
	case !(c.LoadGBps >= 0) || math.IsInf(c.LoadGBps, 0):
		return fmt.Errorf("load of %s GB/s: want 0 or more", schemas.Decimal(c.LoadGBps))
	case !(c.ModelCacheGB >= 0) || math.IsInf(c.ModelCacheGB, 0):
		return fmt.Errorf("model cache of %s GB: want 0 or more", schemas.Decimal(c.ModelCacheGB))
	}
	return nil
}

// model is a served model with what follows from its device.
type model struct {
	index    int
	name     string
	loadMs   int64
	loadS    float64
	deployMs int64 // into the cache of a node
	capacity int   // tokens of KV
	fit      Fit
	batch    float64 // the batch term, 0 for the actual one
	bytes    int64   // of weights
	nodes    []int   // that have it ready
	active   []int   // requests under way, by node
	captured bool    // its decode steps have graphs
	replayed bool
}

func (c Config) models() ([]*model, error) {
	if len(c.Models) == 0 {
		return nil, errors.New("no models to serve")
	}
	var out []*model
	for i, served := range c.Models {
		m, err := c.model(i, served)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (c Config) model(i int, s Served) (*model, error) {
	m := &model{index: i, name: s.Name, capacity: KVCapacity(c.Device, s.Base), fit: s.Fit, loadS: s.Base.MemoryGB / c.BandwidthGBps, bytes: int64(s.Base.MemoryGB * gib)}
	if m.capacity < 1 {
		return nil, fmt.Errorf("model %s of %s GB leaves no room for KV in the %s GB of %s: take another device", s.Name, schemas.Decimal(s.Base.MemoryGB), schemas.Decimal(c.Device.MemoryGB), c.Device.Name)
	}
	if !(m.loadS >= 0) || m.loadS > maxLatencyS {
		return nil, fmt.Errorf("model %s takes %s s to load: want a finite time", s.Name, schemas.Decimal(m.loadS))
	}
	m.loadMs = int64(m.loadS * 1000)
	if c.LoadGBps > 0 {
		m.deployMs = toMs(s.Base.MemoryGB / c.LoadGBps)
	}
	if c.BatchTerm == BatchArtifact {
		m.batch = -1
	}
	m.active = make([]int, c.Nodes)
	if c.Graphs != nil {
		m.captured = c.Graphs.Ready
	}
	return m, nil
}

// toMs truncates a latency to whole milliseconds, as the artifact does. A fit
// may go below zero outside of what it was trained on; time does not.
func toMs(seconds float64) int64 {
	if !(seconds > 0) {
		return 0
	}
	return int64(min(1000*seconds, float64(maxMs)))
}

// prefillS is the time of a prefill over contexts with this sum and this sum of squares.
func (m *model) prefillS(tokens, squares int) float64 {
	return m.fit.Prefill.At(float64(tokens), float64(squares))
}

// decodeS is the time of one token for each of n requests with this sum of contexts.
func (m *model) decodeS(tokens, n int) float64 {
	b := float64(n)
	if m.batch != 0 {
		b = m.batch
	}
	return m.fit.Decode.At(float64(tokens), b)
}
