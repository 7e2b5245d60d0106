package load

import (
	"testing"
)

// FuzzSnapshot: whatever a service says of its state is read without a panic, and
// what is ready is among what was placed.
func FuzzSnapshot(f *testing.F) {
	for _, s := range []string{
		`null`, `[]`, `{}`, `{"model_placements":{"a":{"node_0":{"state":"READY","error":null}},"b":{}},"nodes":[{"node_id":"node_0","model_cache":{"models":["a"]}}]}`,
		`{"model_placements":{"node_0":{"a":"ready"}},"nodes":{"node_0":{"model_cache":{"cached_models":{"a":1}}}}}`,
		`{"model_placements":[{"model":"a","node_id":"n","state":"FAILED","error":"x"}]}`,
		`{"decode_load":{"engines":[{"engine":0,"node_id":"node_0","model_switches":3}],"model_switches":3},"model_placement_stats":{"total":{"evictions":1}}}`,
		`{"request_routing":{"cumulative_assignments":{"by_model":{"a":{"node_0":2},"b":{"by_node":{"node_0":1}},"c":3}}},"model_placement_stats":{"by_node":{"n":{"evictions":2}}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSnapshot(b)
		if err != nil {
			return
		}
		for model, nodes := range s.placements {
			for _, n := range s.readyOn(model) {
				if nodes[n].state != stateReady {
					t.Fatalf("%s on %s is %q", model, n, nodes[n].state)
				}
			}
		}
		if n := switchesOf(s, s, "", 1, 1); n != nil && *n != 0 {
			t.Fatalf("%v switches between equal snapshots", *n)
		}
	})
}

// FuzzAnswer: the same for what it says of a deployment.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		`null`, `{"status":"ok","ready_nodes":["node_0"],"failed":[],"results":[{"node_id":"node_0","evicted":["a"]}]}`,
		`{"status":"partial","failed":{"node_1":{"error":"x"},"node_2":"y"},"results":{"node_0":{"evicted":[{"model":"b"}]}}}`,
		`{"detail":{"message":"m"}}`, `{"detail":[{"loc":["body"]}]}`, `{"detail":"s"}`, `{"failed":[1,"node_3",{"node":"n","status":"draining"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = refusal(b)
		a, err := parseAnswer(b)
		if err != nil {
			return
		}
		if draining(a.failed) && len(a.failed) == 0 {
			t.Fatal("nothing failed, and it drains")
		}
		_ = failureText(a.failed)
	})
}

func TestSnapshotForms(t *testing.T) {
	for name, text := range map[string]string{
		"models outside": `{"model_placements":{"a":{"n0":{"state":"READY"},"n1":{"state":"LOADING"}}}}`,
		"nodes outside":  `{"model_placements":{"n0":{"a":"ready"},"n1":{"a":"loading"}},"nodes":[{"node_id":"n0","model_cache":{"models":[]}},{"node_id":"n1","model_cache":{"models":[]}}]}`,
		"a list":         `{"model_placements":[{"model":"a","node_id":"n0","state":"READY"},{"model_name":"a","node":"n1","state":"LOADING"}]}`,
	} {
		s, err := parseSnapshot([]byte(text))
		if err != nil || len(s.readyOn("a")) != 1 || s.readyOn("a")[0] != "n0" || s.placements["a"]["n1"].state != stateLoading {
			t.Errorf("%s: %v, %+v", name, err, s.placements)
		}
	}
	s, err := parseSnapshot([]byte(`{"decode_load":{"node_0":{"engines":[{"model_switches":3},{"model_switches":4}],"model_switches":7},"node_1":[{"model_switches":1}]}}`))
	if err != nil || s.switches["node_0"] != 7 || s.switches["node_1"] != 1 {
		t.Errorf("%v, %v", err, s.switches)
	}
	if s.evictions != nil || s.assigned != nil || s.cached != nil || s.placements != nil {
		t.Errorf("what is not told is there: %+v", s)
	}
}
