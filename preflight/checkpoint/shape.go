package checkpoint

import (
	"strconv"
	"strings"
)

// shapes are the sizes of the language model that its tensors show.
type shapes struct {
	layers              int64 // the highest number of a layer, and one
	query, key, headDim int64 // rows of the projections, and elements of their norms
	vocabulary, hidden  int64
	quantized           bool
}

// otherParts are words in the names of tensors that are not the language model's
// own layers.
var otherParts = []string{"vision", "visual", "audio", "mtp", "eagle", "draft"}

// shapesOf reads the names and shapes of tensors.
func shapesOf(shards []shard) shapes {
	var out shapes
	for _, s := range shards {
		for _, t := range s.header.Tensors {
			if !other(t.Name) {
				out.take(t)
			}
		}
	}
	return out
}

func other(name string) bool {
	for _, word := range otherParts {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

func (s *shapes) take(t Tensor) {
	if n, ok := layerOf(t.Name); ok && n+1 > s.layers {
		s.layers = n + 1
	}
	if strings.HasSuffix(t.Name, ".qweight") || strings.HasSuffix(t.Name, ".weight_packed") {
		s.quantized = true
	}
	dim := func(i int) int64 {
		if i >= len(t.Shape) || t.Shape[i] > 1<<40 {
			return 0
		}
		return int64(t.Shape[i])
	}
	switch {
	case strings.HasSuffix(t.Name, "self_attn.q_proj.weight"):
		s.query = max(s.query, dim(0))
	case strings.HasSuffix(t.Name, "self_attn.k_proj.weight"):
		s.key = max(s.key, dim(0))
	case strings.HasSuffix(t.Name, "self_attn.k_norm.weight") && len(t.Shape) == 1:
		s.headDim = max(s.headDim, dim(0))
	case strings.HasSuffix(t.Name, "embed_tokens.weight") && len(t.Shape) == 2:
		s.vocabulary, s.hidden = max(s.vocabulary, dim(0)), dim(1)
	}
}

// layerOf is the number after the first "layers." or "h." of a name.
func layerOf(name string) (int64, bool) {
	parts := strings.Split(name, ".")
	for i := 0; i+1 < len(parts); i++ {
		if parts[i] == "layers" || parts[i] == "h" || parts[i] == "blocks" {
			n, err := strconv.ParseInt(parts[i+1], 10, 32)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// compareConfig holds the configuration against the weights, and takes from the
// weights what it leaves out: some leave out whatever is usual for their type.
func (f *folder) compareConfig(shards []shard) {
	s, c := shapesOf(shards), &f.facts
	if s.layers > 0 && c.Layers > s.layers {
		f.add(idLayers, "config.json says %d layers, the weights have %d", c.Layers, s.layers)
	}
	fill(&c.Layers, s.layers)
	if c.FullAttentionLayers+c.SlidingLayers == 0 {
		c.FullAttentionLayers = c.Layers
	}
	fill(&c.Vocabulary, s.vocabulary)
	fill(&c.Hidden, s.hidden)
	if s.quantized || s.key == 0 {
		return
	}
	fill(&c.HeadDim, s.headDim)
	if c.HeadDim == 0 {
		return
	}
	if c.KVHeads > 0 && c.KVHeads*c.HeadDim != s.key && s.headDim == c.HeadDim {
		f.add(idHeads, "config.json says %d heads of keys and values of %d, the weights have %d rows", c.KVHeads, c.HeadDim, s.key)
	}
	fill(&c.KVHeads, s.key/c.HeadDim)
	fill(&c.Heads, s.query/c.HeadDim)
}

func fill(into *int64, value int64) {
	if *into == 0 {
		*into = value
	}
}
