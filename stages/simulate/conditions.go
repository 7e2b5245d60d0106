package simulate

import (
	"context"
	"crypto/sha256"
	"strconv"

	"assay/internal/serving"
	"assay/schemas"
)

// maxSecondPoint is the largest workload that is simulated again, with the other
// batch term, to say how much that choice moves the result.
const maxSecondPoint = 20_000

func (p point) conditions(ctx context.Context, set schemas.Settings, sim serving.Result) ([]schemas.Condition, error) {
	var list []schemas.Condition
	add := func(name string, value any) { list = append(list, schemas.Condition{Name: name, Value: value}) }
	add("simulated", "a model of a serving system on a virtual clock; nothing was measured")
	add("requests_digest", requestsDigest(p.in))
	add("policy", p.cfg.Policy)
	add("device", map[string]any{"name": p.cfg.Device.Name, "memory_gb": p.cfg.Device.MemoryGB})
	add("workers", p.cfg.Workers)
	add("prefill_workers", p.cfg.PrefillWorkers)
	add("bandwidth_gb_per_s", p.cfg.BandwidthGBps)
	add("switch_overhead", set.Text("switch_overhead"))
	add("patience", set.Text("patience"))
	add("served_models", len(p.in.Models))
	add("latency_source", p.source)
	add("latency_fits", p.fits)
	add("simulation_counters", sim.Stats)
	if p.cfg.Policy == serving.PolicyAegaeon || p.cfg.Nodes > 1 {
		add("simulated_cluster", sim.Cluster)
	}
	add("batch_term", p.cfg.BatchTerm)
	effect, why, err := p.batchTermEffect(ctx, sim)
	if err != nil {
		return nil, err
	}
	if why != "" {
		return append(list, schemas.Condition{Name: "batch_term_effect", Unknown: why}), nil
	}
	add("batch_term_effect", effect)
	return list, nil
}

// requestsDigest is the SHA-256 of what was simulated: id, model, arrival and lengths
// of each request, a line each. Results are compared where it is the same.
func requestsDigest(in serving.Input) schemas.Digest {
	h := sha256.New()
	var line []byte
	for _, r := range in.Requests {
		line = strconv.AppendQuote(line[:0], in.IDs[r.Index])
		line = strconv.AppendQuote(append(line, ','), in.Models[r.Model].Name)
		for _, n := range []int64{r.AtMs, int64(r.InputTokens), int64(r.OutputTokens)} {
			line = strconv.AppendInt(append(line, ','), n, 10)
		}
		h.Write(append(line, '\n'))
	}
	return schemas.DigestFromSum(h.Sum(nil))
}

// batchTermEffect is what the mean QoS comes to with the other batch term.
func (p point) batchTermEffect(ctx context.Context, sim serving.Result) (effect any, why string, err error) {
	if len(p.in.Requests) > maxSecondPoint {
		return nil, "the workload is too large to be simulated twice", nil
	}
	other := p.otherTerm()
	second, err := serving.Simulate(ctx, p.in, other, p.slo, nil)
	if err != nil {
		return nil, "", err
	}
	return map[string]any{"other": other.BatchTerm, "mean_qos": second.MeanQoS, "difference": second.MeanQoS - sim.MeanQoS}, "", nil
}

// otherTerm is the system with the other batch term.
func (p point) otherTerm() serving.Config {
	other := p.cfg
	other.BatchTerm = serving.BatchArtifact
	if p.cfg.BatchTerm == serving.BatchArtifact {
		other.BatchTerm = serving.BatchActual
	}
	return other
}
