package stages

import (
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

func TestKindsAreThoseDescribed(t *testing.T) {
	specs, kinds := schemas.Kinds(), Kinds()
	if len(specs) != len(kinds) {
		t.Fatalf("%d kinds are described, %d exist", len(specs), len(kinds))
	}
	for i, spec := range specs {
		k := kinds[i]
		if k.Name != spec.Name {
			t.Errorf("kind %d is %q, described as %q", i, k.Name, spec.Name)
		}
		if k.Version < 1 || k.Run == nil || k.Outputs == nil {
			t.Errorf("kind %s has no version, Run or Outputs", k.Name)
			continue
		}
		config := map[string]any{"outputs": map[string]any{"b": "x", "a": "y"}}
		want := spec.Outputs
		if len(want) == 1 && want[0] == "*" {
			want = []string{"a", "b"}
		}
		if diff := cmp.Diff(want, k.Outputs(config)); diff != "" {
			t.Errorf("outputs of kind %s (-described +made):\n%s", k.Name, diff)
		}
		if k.Measured && k.Pure != nil {
			t.Errorf("kind %s is measured and may be reused", k.Name)
		}
	}
}
