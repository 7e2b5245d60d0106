package simulate

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/serving"
	"assay/pipeline"
	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

const crowded = "../../internal/serving/testdata/crowded.csv"

// stage runs the kind and returns its outputs by path, and its findings.
func stage(t *testing.T, trial string, seed uint64, config map[string]any) (map[string]string, []schemas.Finding, error) {
	t.Helper()
	fields, ok := schemas.FieldsOf("simulate")
	if !ok {
		t.Fatal("the kind is not described")
	}
	var found []schemas.Finding
	task := &pipeline.Task{
		Node: schemas.Node{ID: "sim@" + trial, Stage: "sim", Trial: trial}, Config: schemas.ApplyDefaults(fields, config), Seed: seed, Dir: t.TempDir(), Log: &bytes.Buffer{},
		Report: func(f schemas.Finding) { found = append(found, f) },
	}
	err := run(context.Background(), task)
	out := map[string]string{}
	root := filepath.Join(task.Dir, "outputs")
	for _, name := range []string{"requests/requests.csv", "requests/tokens.csv", "result/result.json", "result/conditions.json"} {
		if b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name))); err == nil {
			out[name] = string(b)
		}
	}
	return out, found, err
}

func result(t *testing.T, out map[string]string) schemas.Result {
	t.Helper()
	var res schemas.Result
	if err := json.Unmarshal([]byte(out["result/result.json"]), &res); err != nil {
		t.Fatal(err)
	}
	return res
}

// TestFoldAgreesWithTheModel: what the fold of the measured form gives is what the
// model itself counts, for every policy.
func TestFoldAgreesWithTheModel(t *testing.T) {
	for _, policy := range serving.Policies {
		config := map[string]any{"workload": crowded, "policy": policy, "workers": 3.0}
		out, found, err := stage(t, "t001", 1, config)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := stage(t, "t002", 2, config)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(out, again); diff != "" {
			t.Errorf("%s: another trial, with another seed, gives (-first +second):\n%s", policy, diff)
		}
		res := result(t, out)
		if !res.Simulated || res.Emulated || res.StampSource != schemas.StampSimulated || len(found) == 0 || found[0].ID != "result.simulated" {
			t.Errorf("%s: the result does not say that it is simulated: %+v", policy, found)
		}
		compareWithModel(t, policy, res, out)
	}
}

func compareWithModel(t *testing.T, policy string, res schemas.Result, out map[string]string) {
	t.Helper()
	var conds []schemas.Condition
	if err := json.Unmarshal([]byte(out["result/conditions.json"]), &conds); err != nil {
		t.Fatal(err)
	}
	values := map[string]map[string]any{}
	for _, c := range conds {
		if m, ok := c.Value.(map[string]any); ok {
			values[c.Name] = m
		}
	}
	counters := values["simulation_counters"]
	if counters["finished"] != float64(res.Counts.OK) || counters["requests"] != float64(res.Counts.Issued) || counters["tokens"] != float64(res.Counts.OutputTokens) {
		t.Errorf("%s: counters %v, counts %+v", policy, counters, res.Counts)
	}
	rows, tokens := strings.Count(out["requests/requests.csv"], "\n"), strings.Count(out["requests/tokens.csv"], "\n")
	if rows != res.Counts.Issued+1 || tokens != rows {
		t.Errorf("%s: %d lines of requests and %d of tokens for %d requests", policy, rows, tokens, res.Counts.Issued)
	}
	effect := values["batch_term_effect"]
	own := effect["mean_qos"].(float64) - effect["difference"].(float64)
	if mean := res.Metrics["qos"].Mean; mean == nil || math.Abs(*mean-own) > 1e-12 {
		t.Errorf("%s: the fold's mean qos is %v, the model's %v", policy, *mean, own)
	}
}

func TestTokensAreOptional(t *testing.T) {
	out, _, err := stage(t, "t001", 1, map[string]any{"workload": crowded, "policy": "serverlessllm", "tokens": false})
	if _, there := out["requests/tokens.csv"]; err != nil || there || out["requests/requests.csv"] == "" {
		t.Errorf("%v, outputs %v", err, maps.Keys(out))
	}
}

// TestModelsAreDrawn: a workload without models takes a seed, and only that one.
func TestModelsAreDrawn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.csv")
	text := "request_id,timestamp,input_tokens,output_tokens\n"
	for _, id := range strings.Split("abcdefgh", "") {
		text += id + ",0.5,100,20\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config := map[string]any{"workload": path, "models": 5.0, "policy": "aegaeon"}
	one, _, err := stage(t, "t001", 1, config)
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := stage(t, "t002", 2, config)
	if err != nil {
		t.Fatal(err)
	}
	if cmp.Equal(one, two) {
		t.Error("another seed gives the same models")
	}
	k := Kind()
	if k.Seed(config) != pipeline.SeedRepetition || k.Seed(map[string]any{}) != pipeline.SeedNone || !k.Pure(nil) {
		t.Error("a simulation is pure, and takes a seed only where models are drawn")
	}
}

func TestErrors(t *testing.T) {
	for want, config := range map[string]map[string]any{
		"is not known":       {"workload": crowded, "policy": "serverlessllm", "device": "tpu"},
		"one left to decode": {"workload": crowded, "policy": "aegaeon", "workers": 1.0},
		"MODEL/DEVICE":       {"workload": crowded, "policy": "aegaeon", "profiles": t.TempDir()},
		"no such file":       {"workload": "missing.csv", "policy": "aegaeon"},
	} {
		out, _, err := stage(t, "t001", 1, config)
		if err == nil || !strings.Contains(err.Error(), want) || out["result/result.json"] != "" {
			t.Errorf("want an error with %q and no result, got %v", want, err)
		}
	}
}
