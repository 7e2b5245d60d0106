package observe

import "testing"

// FuzzRuntime: whatever a service says of its state is read without a panic, and
// what is ready is among what was placed.
func FuzzRuntime(f *testing.F) {
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
		s, err := ParseRuntime(b)
		if err != nil {
			return
		}
		for model, nodes := range s.Placements {
			for _, n := range s.ReadyOn(model) {
				if nodes[n].State != ReplicaReady {
					t.Fatalf("%s on %s is %q", model, n, nodes[n].State)
				}
			}
		}
		if n, told := s.SwitchCount(); told != (s.Switches != nil) || (!told && n != 0) {
			t.Fatalf("%v switches, told: %v", n, told)
		}
	})
}

func TestRuntimeForms(t *testing.T) {
	for name, text := range map[string]string{
		"models outside": `{"model_placements":{"a":{"n0":{"state":"READY"},"n1":{"state":"LOADING"}}}}`,
		"nodes outside":  `{"model_placements":{"n0":{"a":"ready"},"n1":{"a":"loading"}},"nodes":[{"node_id":"n0","model_cache":{"models":[]}},{"node_id":"n1","model_cache":{"models":[]}}]}`,
		"a list":         `{"model_placements":[{"model":"a","node_id":"n0","state":"READY"},{"model_name":"a","node":"n1","state":"LOADING"}]}`,
	} {
		s, err := ParseRuntime([]byte(text))
		if err != nil || len(s.ReadyOn("a")) != 1 || s.ReadyOn("a")[0] != "n0" || s.Placements["a"]["n1"].State != ReplicaLoading {
			t.Errorf("%s: %v, %+v", name, err, s.Placements)
		}
	}
	s, err := ParseRuntime([]byte(`{"decode_load":{"node_0":{"engines":[{"model_switches":3},{"model_switches":4}],"model_switches":7},"node_1":[{"model_switches":1}]}}`))
	if err != nil || s.Switches["node_0"] != 7 || s.Switches["node_1"] != 1 {
		t.Errorf("%v, %v", err, s.Switches)
	}
	if s.Evictions != nil || s.Assigned != nil || s.Cached != nil || s.Placements != nil {
		t.Errorf("what is not told is there: %+v", s)
	}
}
