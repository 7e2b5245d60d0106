package measure

import (
	"fmt"
	"strings"

	"assay/internal/workload"
	"assay/schemas"
)

// streams lists the generators that a schedule was drawn from, by seed.
func (p *plan) streams(set schemas.Settings) []schemas.SeedStream {
	h := p.header
	var out []schemas.SeedStream
	add := func(name string, seed uint64, purpose string, used bool) {
		if used {
			start := workload.SubSeed(seed, strings.Replace(purpose, "/N", "/0", 1))
			out = append(out, schemas.SeedStream{Seed: name, Purpose: purpose, Start: fmt.Sprintf("%016x", start)})
		}
	}
	if h.Process != nil {
		add("arrival", h.Seeds.Arrival, "arrival/"+h.Process.Process, h.Process.Process != workload.ProcessConstant)
	}
	add("arrival", h.Seeds.Arrival, "arrival/think", set.Table("think").Text("dist") == "exponential")
	add("assignment", h.Seeds.Assignment, workload.PurposeAssign, len(p.models) > 1 && h.Mode != schemas.ModeSwitch && !workload.Form(h.WorkloadForm).NamesModels())
	add("content", h.Seeds.Content, "lengths/input", h.Input != nil && h.Input.Dist != workload.DistFixed)
	add("content", h.Seeds.Content, "lengths/output", h.Output != nil && h.Output.Dist != workload.DistFixed)
	blocks, texts := false, true
	for i := range p.requests {
		blocks = blocks || len(p.requests[i].Blocks) > 0
		texts = texts && p.requests[i].Text != ""
	}
	add("content", h.Seeds.Content, "block/N", blocks)
	add("content", h.Seeds.Content, "prompt/N", !texts)
	add("order", h.Seeds.Order, "order/prompts", set.Bool("shuffle"))
	add("order", h.Seeds.Order, "order/switch/0", h.Mode == schemas.ModeSwitch)
	return out
}
