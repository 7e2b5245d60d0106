package load

import (
	"testing"
)

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
