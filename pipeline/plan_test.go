package pipeline

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// testKinds are the kinds of the experiment file with no work to do: planning
// must not run anything.
func testKinds() []Kind {
	pure := func(map[string]any) bool { return true }
	perRepetition := func(c map[string]any) SeedUse {
		if on, ok := c["per_repetition"].(bool); ok && !on {
			return SeedExperiment
		}
		return SeedRepetition
	}
	return []Kind{
		{Name: "preflight", Version: 1, Early: true},
		{Name: "workload", Version: 1, Pure: pure, Seed: perRepetition},
		{Name: "command", Version: 1, Pure: func(c map[string]any) bool { return c["reuse"] == true }, Seed: func(c map[string]any) SeedUse {
			if c["seeded"] == true {
				return SeedRepetition
			}
			return SeedNone
		}},
		{Name: "warmup", Version: 1},
		{Name: "measure", Version: 1, Measured: true, Seed: perRepetition},
		{Name: "report", Version: 1, Pure: pure},
	}
}

func command(needs []string, config map[string]any) schemas.StageDef {
	c := map[string]any{"argv": []any{"true"}}
	for k, v := range config {
		c[k] = v
	}
	return schemas.StageDef{Kind: "command", Scope: schemas.ScopeTrial, Needs: needs, Config: c}
}

func baseExperiment() schemas.Experiment {
	return schemas.Experiment{
		Schema: schemas.ExperimentV1, Name: "test", Params: map[string]any{"rate": 0.5, "policy": "a", "w": map[string]any{"path": "w.csv"}},
		Trials:  schemas.Trials{Repeat: 1, Order: schemas.OrderInterleaved, Seed: 7},
		Stage:   map[string]schemas.StageDef{},
		Service: map[string]schemas.Service{},
	}
}

func mustPlan(t interface{ Fatal(...any) }, exp schemas.Experiment) schemas.Plan {
	plan, err := NewPlan(exp, testKinds())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestOrders(t *testing.T) {
	for order, want := range map[string]string{
		schemas.OrderSequential:  "a0 a1 a2 b0 b1 b2",
		schemas.OrderInterleaved: "a0 b0 a1 b1 a2 b2",
		schemas.OrderABBA:        "a0 b0 b1 a1 a2 b2",
	} {
		exp := baseExperiment()
		exp.Matrix = map[string][]any{"policy": {"a", "b"}}
		exp.Trials.Repeat, exp.Trials.Order = 3, order
		var got []string
		for _, tr := range expandTrials(exp) {
			got = append(got, fmt.Sprint(tr.Point["policy"], tr.Repetition))
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%s: %s, want %s", order, g, want)
		}
	}
}

func TestRandomOrderIsSeededAndWhole(t *testing.T) {
	exp := baseExperiment()
	exp.Matrix = map[string][]any{"policy": {"a", "b", "c"}, "rate": {1.0, 2.0}}
	exp.Trials.Repeat, exp.Trials.Order = 4, schemas.OrderRandom
	one, two := expandTrials(exp), expandTrials(exp)
	if diff := cmp.Diff(one, two); diff != "" {
		t.Error("equal seeds give different orders:", diff)
	}
	seen := map[string]int{}
	for _, tr := range one {
		seen[trialLabel(tr)]++
	}
	if len(seen) != 24 {
		t.Errorf("%d different trials, want 24", len(seen))
	}
	exp.Trials.Seed++
	if reflect.DeepEqual(one, expandTrials(exp)) {
		t.Error("another seed gives the same order and seeds")
	}
}

func TestSeedsAreEqualAcrossPointsAndDifferAcrossRepetitions(t *testing.T) {
	exp := baseExperiment()
	exp.Matrix = map[string][]any{"policy": {"a", "b"}}
	exp.Trials.Repeat = 5
	byRep := map[int]uint64{}
	for _, tr := range expandTrials(exp) {
		if s, ok := byRep[tr.Repetition]; ok && s != tr.Seed {
			t.Errorf("repetition %d has two seeds", tr.Repetition)
		}
		byRep[tr.Repetition] = tr.Seed
		if tr.Seed >= 1<<53 {
			t.Errorf("seed %d does not survive JSON", tr.Seed)
		}
	}
	distinct := map[uint64]bool{}
	for _, s := range byRep {
		distinct[s] = true
	}
	if len(distinct) != 5 {
		t.Errorf("%d different seeds over 5 repetitions", len(distinct))
	}
}

func TestPureUnseededStageIsOneSeededIsFive(t *testing.T) {
	exp := baseExperiment()
	exp.Trials.Repeat = 5
	exp.Stage["pure"] = command(nil, map[string]any{"reuse": true})
	exp.Stage["seeded"] = command(nil, map[string]any{"reuse": true, "seeded": true})
	exp.Stage["after"] = command([]string{"pure"}, map[string]any{"reuse": true})
	exp.Stage["impure"] = command(nil, nil)
	count := map[string]int{}
	keys := map[schemas.Key]bool{}
	for _, n := range mustPlan(t, exp).Nodes {
		count[n.Stage]++
		if n.Stage == "seeded" {
			keys[n.Key] = true
		}
	}
	if diff := cmp.Diff(map[string]int{"pure": 1, "after": 1, "seeded": 5, "impure": 5}, count); diff != "" {
		t.Error(diff)
	}
	if len(keys) != 5 {
		t.Errorf("five seeded repetitions have %d different keys", len(keys))
	}
}

func TestPureStageIsSharedByThePointsItDoesNotSee(t *testing.T) {
	exp := baseExperiment()
	exp.Matrix = map[string][]any{"policy": {"a", "b"}, "rate": {1.0, 2.0}}
	exp.Stage["gen"] = command(nil, map[string]any{"reuse": true, "argv": []any{"gen", "${param.rate}"}})
	plan := mustPlan(t, exp)
	if len(plan.Nodes) != 2 {
		t.Fatalf("%d nodes, want one for each rate", len(plan.Nodes))
	}
	for _, n := range plan.Nodes {
		if len(n.Trials) != 2 {
			t.Errorf("node %s serves trials %v, want two", n.ID, n.Trials)
		}
	}
}

func TestRunScopeFansIn(t *testing.T) {
	exp := baseExperiment()
	exp.Trials.Repeat = 3
	exp.Stage["work"] = command(nil, nil)
	exp.Stage["sum"] = schemas.StageDef{Kind: "report", Scope: schemas.ScopeRun, Needs: []string{"work"}}
	plan := mustPlan(t, exp)
	last := plan.Nodes[len(plan.Nodes)-1]
	if diff := cmp.Diff([]string{"work@t001", "work@t002", "work@t003"}, last.Needs); last.ID != "sum" || diff != "" {
		t.Error(last.ID, diff)
	}
}

func TestCycleIsPrinted(t *testing.T) {
	exp := baseExperiment()
	exp.Stage["a"] = command([]string{"b"}, nil)
	exp.Stage["b"] = command(nil, map[string]any{"argv": []any{"x", "${stage.c.out}"}})
	exp.Stage["c"] = command([]string{"a"}, nil)
	_, err := NewPlan(exp, testKinds())
	if err == nil || !strings.Contains(err.Error(), "a -> b -> c -> a") {
		t.Errorf("error %v does not print the cycle", err)
	}
}

func TestServiceLifetimes(t *testing.T) {
	for restart, want := range map[string][]string{
		"trial":  {"engine-1 t001", "engine-2 t002", "engine-3 t003", "engine-4 t004"},
		"change": {"engine-1 t001 t002", "engine-2 t003 t004"},
		"run":    nil, // what it is started with differs: refused
	} {
		exp := baseExperiment()
		exp.Matrix = map[string][]any{"policy": {"a", "b"}}
		exp.Trials.Repeat, exp.Trials.Order = 2, schemas.OrderSequential
		exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: restart, Config: map[string]any{"command": []any{"serve", "${param.policy}"}}}
		exp.Stage["replay"] = schemas.StageDef{Kind: "measure", Scope: schemas.ScopeTrial, Service: "engine", Config: map[string]any{"workload": "${param.w}"}}
		plan, err := NewPlan(exp, testKinds())
		if (err != nil) != (want == nil) {
			t.Errorf("restart = %q: %v", restart, err)
		}
		var got []string
		for _, u := range plan.Services {
			got = append(got, u.ID+" "+strings.Join(u.Trials, " "))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("restart = %q: %s", restart, diff)
		}
	}
}

// TestPlanProperties checks over random graphs that nodes stand after what they
// need, that planning is deterministic, and that ids are unique.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		exp := baseExperiment()
		exp.Trials.Repeat = rapid.IntRange(1, 3).Draw(rt, "repeat")
		exp.Trials.Order = rapid.SampledFrom([]string{schemas.OrderSequential, schemas.OrderInterleaved, schemas.OrderABBA, schemas.OrderRandom}).Draw(rt, "order")
		if rapid.Bool().Draw(rt, "matrix") {
			exp.Matrix = map[string][]any{"policy": {"a", "b"}}
		}
		n := rapid.IntRange(1, 8).Draw(rt, "stages")
		for i := range n {
			var needs []string
			for j := range i {
				if rapid.Bool().Draw(rt, "edge") {
					needs = append(needs, fmt.Sprintf("s%d", j))
				}
			}
			def := command(needs, map[string]any{"reuse": rapid.Bool().Draw(rt, "pure"), "seeded": rapid.Bool().Draw(rt, "seeded")})
			def.Scope = rapid.SampledFrom([]string{schemas.ScopeRun, schemas.ScopeTrial}).Draw(rt, "scope")
			exp.Stage[fmt.Sprintf("s%d", i)] = def
		}
		plan := mustPlan(rt, exp)
		if diff := cmp.Diff(plan, mustPlan(rt, exp)); diff != "" {
			rt.Fatal("two plans of one experiment differ:", diff)
		}
		done := []string{}
		for _, node := range plan.Nodes {
			if slices.Contains(done, node.ID) {
				rt.Fatalf("node %s twice", node.ID)
			}
			for _, need := range node.Needs {
				if !slices.Contains(done, need) {
					rt.Fatalf("node %s stands before %s, which it needs", node.ID, need)
				}
			}
			done = append(done, node.ID)
		}
	})
}

func TestDefinitionKeyFollowsWhatTheStageRefersTo(t *testing.T) {
	key := func(change func(*schemas.Experiment)) schemas.Key {
		exp := baseExperiment()
		exp.Stage["gen"] = command(nil, map[string]any{"argv": []any{"gen", "${param.rate}"}, "inputs": map[string]any{"data": "data.csv"}})
		change(&exp)
		return mustPlan(t, exp).Nodes[0].Key
	}
	base := key(func(*schemas.Experiment) {})
	same := map[string]func(*schemas.Experiment){
		"another parameter": func(e *schemas.Experiment) { e.Params["policy"] = "z" },
		"the title":         func(e *schemas.Experiment) { e.Title = "other" },
		"a literal path": func(e *schemas.Experiment) {
			e.Stage["gen"].Config["inputs"] = map[string]any{"data": "/elsewhere/data.csv"}
		},
		"a time limit":       func(e *schemas.Experiment) { d := e.Stage["gen"]; d.Timeout = 5e9; e.Stage["gen"] = d },
		"more repetitions":   func(e *schemas.Experiment) { e.Trials.Repeat = 9 },
		"the seed, unseeded": func(e *schemas.Experiment) { e.Trials.Seed = 9 },
	}
	for what, change := range same {
		if key(change) != base {
			t.Errorf("%s changes the key", what)
		}
	}
	other := map[string]func(*schemas.Experiment){
		"the parameter": func(e *schemas.Experiment) { e.Params["rate"] = 0.6 },
		"an argument":   func(e *schemas.Experiment) { e.Stage["gen"].Config["argv"] = []any{"gen", "-v", "${param.rate}"} },
		"an input's name": func(e *schemas.Experiment) {
			e.Stage["gen"].Config["inputs"] = map[string]any{"other": "data.csv"}
		},
		"seeding": func(e *schemas.Experiment) { e.Stage["gen"].Config["seeded"] = true },
	}
	for what, change := range other {
		if key(change) == base {
			t.Errorf("%s does not change the key", what)
		}
	}
}

func TestAStageNeedsWhatItsServiceIsStartedWith(t *testing.T) {
	exp := baseExperiment()
	exp.Service["engine"] = schemas.Service{Engine: "openai", Restart: "trial", Config: map[string]any{"command": []any{"serve", "${stage.zzz.out}"}}}
	exp.Stage["zzz"] = command(nil, nil)
	exp.Stage["use"] = schemas.StageDef{Kind: "warmup", Scope: schemas.ScopeTrial, Service: "engine"}
	plan := mustPlan(t, exp)
	last := plan.Nodes[len(plan.Nodes)-1]
	if last.Stage != "use" || !slices.Equal(last.Needs, []string{"zzz@t001"}) {
		t.Errorf("last node %+v", last)
	}
}
