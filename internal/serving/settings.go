package serving

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"assay/schemas"
)

// ConfigOf reads the keys that describe a serving system (schemas), but for its
// device, its models and the target that steers quotas. Policy, workers and
// prefillWorkers are given apart, since a sweep varies them; 0 prefill workers are
// DefaultPrefillWorkers, where the policy has any.
func ConfigOf(set schemas.Settings, policy string, workers, prefillWorkers int) Config {
	c := Config{
		Policy: policy, Workers: workers, PrefillWorkers: prefillWorkers, BatchTerm: BatchTerm(set.Text("batch_term")),
		BandwidthGBps: set.Float("bandwidth_gb_per_s"), SwitchOverheadMs: set.Duration("switch_overhead").Milliseconds(),
		PatienceMs: set.Duration("patience").Milliseconds(),
		Nodes:      set.Int("nodes"), Replicas: set.Int("replicas"), Routing: set.Text("routing"), Placement: set.Text("placement"), ModelCacheGB: set.Float("model_cache_gb"),
	}
	if c.Policy == PolicyAegaeon {
		c.WorkStealing, c.StealMinGap = set.Bool("work_stealing"), set.Int("work_stealing_min_batch_gap")
		if c.PrefillWorkers == 0 {
			c.PrefillWorkers = DefaultPrefillWorkers(c.Workers)
		}
	}
	return c
}

// DeviceOf is the device of these keys, its memory as stated.
func DeviceOf(set schemas.Settings, name string) (Device, error) {
	d, err := FindDevice(name)
	if err == nil && set.Has("memory_gb") {
		d.MemoryGB = set.Float("memory_gb")
	}
	return d, err
}

// LatenciesOf are those that the keys state, else those of their profiles, else the
// built-in ones. The source is for people.
func LatenciesOf(set schemas.Settings, device string, bases []BaseModel) (fits map[string]Fit, source string, err error) {
	stated := set.Tables("latencies")
	if len(stated) == 0 {
		return Latencies(set.Text("profiles"), device, bases)
	}
	if set.Has("profiles") {
		return nil, "", errors.New("profiles and latencies are both given: say one")
	}
	fits = map[string]Fit{}
	var sources []string
	for _, t := range stated {
		var f Fit
		for name, into := range map[string]*Coefficients{"prefill": &f.Prefill, "decode": &f.Decode} {
			if err := coefficients(t.List(name), into); err != nil {
				return nil, "", fmt.Errorf("latencies of %s: %s: %w", t.Text("model"), name, err)
			}
		}
		fits[t.Text("model")] = f
		if !slices.Contains(sources, t.Text("source")) {
			sources = append(sources, t.Text("source"))
		}
	}
	for _, m := range bases {
		if _, ok := fits[m.Name]; !ok {
			return nil, "", fmt.Errorf("latencies: there are none of %s, which is used", m.Name)
		}
	}
	return fits, "stated: " + strings.Join(sources, "; "), nil
}

func coefficients(list []string, into *Coefficients) error {
	if len(list) != len(into) {
		return fmt.Errorf("%d coefficients: want %d", len(list), len(into))
	}
	for i, text := range list {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%q: want a finite number", text)
		}
		into[i] = v
	}
	return nil
}
