package checkpoint

import (
	"bytes"
	"testing"
	"testing/fstest"

	"assay/schemas"
)

// Whatever stands in a file, reading its header ends, and what is accepted covers
// the file to its last byte.
func FuzzSafetensors(f *testing.F) {
	for _, c := range faults {
		m := small()
		c.edit(m)
		for _, name := range []string{second, "model.safetensors"} {
			if one := m[name]; one != nil && len(one.Data) < 4096 {
				f.Add(one.Data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHeader(bytes.NewReader(b), int64(len(b)), func(int64) bool { return true })
		if err == nil {
			at := h.DataStart
			for _, x := range h.Tensors {
				n, known, _ := x.bytes()
				if h.DataStart+x.Begin != at || known && n != x.End-x.Begin {
					t.Fatalf("tensor %+v at %d", x, at)
				}
				at = h.DataStart + x.End
			}
			if at != uint64(len(b)) {
				t.Fatalf("%d of %d bytes are described", at, len(b))
			}
		}
		m := small()
		single(m)
		m["model.safetensors"] = &fstest.MapFile{Data: b, ModTime: made}
		got := check(m)
		last := got.Findings[len(got.Findings)-1]
		if pass := last.Severity == schemas.SeverityPass; pass && err != nil || len(got.Findings) > 40 {
			t.Fatalf("%v, but %s", err, told(got.Findings))
		}
		if got.Facts.Parameters < 0 || got.Facts.Bytes < 0 || got.Facts.Bytes > int64(len(b)) {
			t.Fatalf("%+v of %d bytes", got.Facts, len(b))
		}
	})
}

// The same of the configuration: whatever it says, it is judged or refused.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(config), []byte(`{"eos_token_id": [9, 8]}`), small()["model.safetensors.index.json"].Data)
	f.Add([]byte(`{"text_config": {"max_position_embeddings": 1e30, "layer_types": ["full_attention", 3]}, "x": [Infinity, "NaN\""]}`), []byte(`{"eos_token_id": -1}`), []byte(`{"weight_map": {"a": "b/c"}}`))
	f.Add([]byte(`{"architectures": {}, "vocab_size": "x", "eos_token_id": 1e99}`), []byte(`[]`), []byte(`{"metadata": {"total_size": 0.5}, "weight_map": {"a": "/b"}}`))
	f.Fuzz(func(t *testing.T, config, generation, index []byte) {
		m := small()
		m["config.json"], m["generation_config.json"], m["model.safetensors.index.json"] = content(string(config)), content(string(generation)), content(string(index))
		got := check(m)
		if len(got.Findings) == 0 || len(got.Findings) > 100 {
			t.Fatalf("%d findings", len(got.Findings))
		}
		for _, finding := range got.Findings {
			if _, ok := byID()[finding.ID]; !ok || finding.Message == "" {
				t.Fatalf("%+v", finding)
			}
		}
		for _, n := range []int64{got.Facts.Layers, got.Facts.HeadDim, got.Facts.KVHeads, got.Facts.ContextLength, got.Facts.Vocabulary} {
			if n < 0 {
				t.Fatalf("%+v", got.Facts)
			}
		}
	})
}
