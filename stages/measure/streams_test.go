package measure

import (
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/internal/loadgen"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// drawn is a plan of generated requests for four models, with the seeds given.
func drawn(t *testing.T, seeds map[string]any, more map[string]any) plan {
	t.Helper()
	config := map[string]any{
		"requests": 3000.0, "arrival": map[string]any{"process": "poisson", "rate": 100.0}, "seeds": seeds,
		"input": map[string]any{"dist": "uniform", "min": 1.0, "max": 60.0}, "output": map[string]any{"dist": "lognormal", "mean": 30.0},
	}
	maps.Copy(config, more)
	return planOf(t, config)
}

func planOf(t *testing.T, config map[string]any) plan {
	t.Helper()
	fields, _ := schemas.FieldsOf("measure")
	task := &pipeline.Task{
		Node: schemas.Node{ID: "m@t001", Stage: "m", Kind: "measure"}, Config: schemas.ApplyDefaults(fields, config), Seed: 7,
		Service:  &pipeline.ServiceView{Name: "engine", Models: []string{"a", "b", "c", "d"}},
		Progress: func(int64, int64, string) {},
	}
	p, err := makePlan(context.Background(), task, schemas.Settings(task.Config))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// aspects of a schedule, each drawn from one seed.
var aspects = map[string]func(loadgen.Request) float64{
	"arrival":    func(r loadgen.Request) float64 { return float64(r.AtNs) },
	"assignment": func(r loadgen.Request) float64 { return float64(r.Model[0]) },
	"input":      func(r loadgen.Request) float64 { return float64(r.InputTokens) },
	"output":     func(r loadgen.Request) float64 { return float64(r.OutputTokens) },
}

func column(p plan, of func(loadgen.Request) float64) []float64 {
	out := make([]float64, len(p.requests))
	for i, r := range p.requests {
		out[i] = of(r)
	}
	return out
}

func TestASeedChangesItsAspectAlone(t *testing.T) {
	same := map[string]any{"arrival": 5.0, "assignment": 5.0, "content": 5.0, "order": 5.0}
	base := drawn(t, same, nil)
	for _, seed := range []string{"arrival", "assignment", "content", "order"} {
		other := maps.Clone(same)
		other[seed] = 6.0
		p := drawn(t, other, nil)
		for name, of := range aspects {
			changes := name == seed || seed == "content" && (name == "input" || name == "output")
			if got := !slices.Equal(column(base, of), column(p, of)); got != changes {
				t.Errorf("seed %s: %s changed: %v", seed, name, got)
			}
		}
		prompts := 0
		for i := range p.requests {
			text := func(p plan) schemas.Digest { // of the prompt itself, not of its length
				r := p.requests[i]
				r.InputTokens = 50
				return loadgen.PromptDigest("completions", p.header.ContentSeed, r)
			}
			if i < 50 && text(p) != text(base) {
				prompts++
			}
		}
		if want := map[bool]int{true: 50}[seed == "content"]; prompts != want {
			t.Errorf("seed %s: %d of 50 prompts changed, want %d", seed, prompts, want)
		}
	}
	// The order of pairs of models.
	walk := func(order float64) []float64 {
		return column(planOf(t, map[string]any{"mode": "switch", "rounds": 3.0, "input": fixed(5), "output": fixed(3), "seeds": map[string]any{"order": order}}), aspects["assignment"])
	}
	if !slices.Equal(walk(5), walk(5)) || slices.Equal(walk(5), walk(6)) {
		t.Error("the order seed does not decide the order")
	}
}

// TestEqualSeedsAreNotAlike correlates what equal numbers draw: gaps, models and
// lengths of the same requests, and of those one further.
func TestEqualSeedsAreNotAlike(t *testing.T) {
	p := drawn(t, map[string]any{"arrival": 5.0, "assignment": 5.0, "content": 5.0, "order": 5.0}, nil)
	columns := map[string][]float64{}
	for name, of := range aspects {
		columns[name] = column(p, of)
	}
	for i := len(p.requests) - 1; i > 0; i-- {
		columns["arrival"][i] -= columns["arrival"][i-1]
	}
	limit := 4.5 / math.Sqrt(float64(len(p.requests)))
	for a, x := range columns {
		for b, y := range columns {
			for shift := range 3 {
				if a == b && shift == 0 {
					continue
				}
				if r := correlation(ranks(x[:len(x)-shift]), ranks(y[shift:])); math.Abs(r) > limit {
					t.Errorf("%s and %s, %d further: correlation %.3f, at most %.3f is chance", a, b, shift, r, limit)
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, s := range p.header.Streams {
		if seen[s.Start] {
			t.Errorf("%s starts where another stream does", s.Purpose)
		}
		seen[s.Start] = true
	}
	if len(seen) != 5 {
		t.Errorf("streams: %+v", p.header.Streams)
	}
	for _, s := range p.header.Streams {
		if s.Seed == "arrival" && (s.Purpose != "arrival/poisson" || workload.SubSeed(5, s.Purpose)>>60 != uint64(hexDigit(s.Start[0]))) {
			t.Errorf("%+v", s)
		}
	}
}

func hexDigit(c byte) int {
	if c >= 'a' {
		return int(c-'a') + 10
	}
	return int(c - '0')
}

func ranks(x []float64) []float64 {
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case x[a] < x[b]:
			return -1
		case x[a] > x[b]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			out[order[k]] = float64(i+j) / 2
		}
		i = j
	}
	return out
}

func correlation(x, y []float64) float64 {
	var mx, my, xy, xx, yy float64
	for i := range x {
		mx, my = mx+x[i]/float64(len(x)), my+y[i]/float64(len(x))
	}
	for i := range x {
		xy, xx, yy = xy+(x[i]-mx)*(y[i]-my), xx+(x[i]-mx)*(x[i]-mx), yy+(y[i]-my)*(y[i]-my)
	}
	return xy / math.Sqrt(xx*yy)
}

func TestPreparingTellsHowFarItIs(t *testing.T) {
	var told []string
	task := &pipeline.Task{Progress: func(done, total int64, text string) { told = append(told, text) }}
	p := newPace(task, "preparing prompts", 200000)
	p.next = time.Time{}
	for i := range 10 {
		if err := p.at(context.Background(), 51200+i); err != nil {
			t.Fatal(err)
		}
	}
	if len(told) != 1 || told[0] != "preparing prompts: 51200 of 200000" {
		t.Errorf("told %q", told)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	set := schemas.Settings{}
	if err := (&plan{header: schemas.Schedule{Mode: schemas.ModeOpen, Seeds: &schemas.Seeds{}}, requests: make([]loadgen.Request, 3)}).seal(ctx, task, set); err == nil {
		t.Error("an interrupted preparation goes on")
	}
}

// TestStreamsThatWereUsed lists those that a schedule drew from, and no others.
func TestStreamsThatWereUsed(t *testing.T) {
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		config map[string]any
		want   string
	}{
		"names models":   {map[string]any{"workload": file("w.csv", synthForm)}, "prompt/N"},
		"names no model": {map[string]any{"workload": file("w.csv", requestsForm)}, "workload/assign-models prompt/N"},
		"blocks":         {map[string]any{"workload": file("w.jsonl", "{\"timestamp\":0,\"input_length\":600,\"output_length\":4,\"hash_ids\":[0,1]}\n"), "workload_form": "mooncake"}, "workload/assign-models block/N prompt/N"},
		"texts":          {map[string]any{"prompts": file("p.txt", "one\ntwo\n"), "workload_form": "text", "mode": "sequential", "output": fixed(3), "shuffle": true}, "workload/assign-models order/prompts"},
		"switch":         {map[string]any{"mode": "switch", "input": fixed(5), "output": fixed(3)}, "prompt/N order/switch/0"},
		"constant":       {map[string]any{"arrival": map[string]any{"process": "constant", "rate": 5.0}, "requests": 4.0, "input": fixed(5), "output": fixed(3), "models": []any{"a"}}, "prompt/N"},
	} {
		var got []string
		for _, s := range planOf(t, c.config).header.Streams {
			got = append(got, s.Purpose)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
