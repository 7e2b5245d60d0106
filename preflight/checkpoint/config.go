package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"assay/schemas"
)

// Limits of configuration files; real ones have a few KiB, with the tokens of a
// large vocabulary a few hundred.
const (
	maxConfigBytes = 16 << 20
	maxConfigDepth = 64
)

// readJSON reads a JSON object; nil when the file is not there or not to be used,
// which is said once.
func (f *folder) readJSON(name string, limit int64) map[string]any {
	one, there := f.files[name]
	if !there || one.bad {
		return nil
	}
	b, err := f.readFile(name, limit)
	var out map[string]any
	if err == nil {
		out, err = parseObject(b)
	}
	if err != nil {
		f.failed(name, err)
		one.bad = true
		f.files[name] = one
		return nil
	}
	return out
}

func parseObject(b []byte) (map[string]any, error) {
	if tooDeep(b, maxConfigDepth) {
		return nil, wrong(idJSON, "tables stand in each other more than %d deep", maxConfigDepth)
	}
	var out map[string]any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&out); err != nil {
		dec = json.NewDecoder(bytes.NewReader(finite(b)))
		dec.UseNumber()
		out = nil
		if dec.Decode(&out) != nil {
			return nil, wrong(idJSON, "is no JSON object: %v", err)
		}
	}
	if dec.More() {
		return nil, wrong(idJSON, "something stands after the object")
	}
	if out == nil {
		return nil, wrong(idJSON, "is null, not an object")
	}
	return out, nil
}

// finite replaces the numbers that Python writes and JSON does not have by null.
func finite(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i, inside := 0, false; i < len(b); i++ {
		switch c := b[i]; {
		case inside && c == '\\' && i+1 < len(b):
			out = append(out, c)
			i++
		case c == '"':
			inside = !inside
		case !inside:
			for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
				if bytes.HasPrefix(b[i:], []byte(word)) {
					out = append(out, "nul"...)
					i += len(word) - 1
					b[i] = 'l'
					break
				}
			}
		}
		out = append(out, b[i])
	}
	return out
}

// table is a member that is an object.
func table(m map[string]any, key string) map[string]any {
	t, _ := m[key].(map[string]any)
	return t
}

// number is a member that is a whole number from 0 up, 0 when there is none.
func number(m map[string]any, keys ...string) int64 {
	for _, key := range keys {
		if n, ok := m[key].(json.Number); ok {
			if v, err := n.Int64(); err == nil && v > 0 {
				return v
			}
			if v, err := n.Float64(); err == nil && v >= 1 && v < 1<<53 && v == math.Trunc(v) {
				return int64(v)
			}
		}
	}
	return 0
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// languageModel is the part of a configuration that describes the language model:
// of a multimodal one a table of its own, whose keys win.
func languageModel(config map[string]any) map[string]any {
	for _, key := range []string{"text_config", "language_config", "llm_config"} {
		if t := table(config, key); t != nil {
			return t
		}
	}
	if t := table(table(config, "thinker_config"), "text_config"); t != nil {
		return t
	}
	return config
}

// readConfig reads config.json.
func (f *folder) readConfig() {
	if _, there := f.files["config.json"]; !there {
		f.add(idConfig, "config.json is not there")
		return
	}
	f.config = f.readJSON("config.json", maxConfigBytes)
	if f.config == nil {
		return
	}
	lm := languageModel(f.config)
	f.facts.ModelType = text(lm, "model_type")
	list, _ := f.config["architectures"].([]any)
	for _, a := range list {
		if s, ok := a.(string); ok && f.facts.Architecture == "" {
			f.facts.Architecture = s
		}
	}
	switch {
	case f.facts.Architecture == "" && text(f.config, "model_type") == "":
		f.add(idArchitecture, "config.json has neither architectures nor model_type")
	case f.facts.Architecture == "":
		f.at(schemas.SeverityWarning, idArchitecture, "config.json has no architectures, only the model type %s", quoted(text(f.config, "model_type")))
	}
	f.facts.Quantization = text(table(f.config, "quantization_config"), "quant_method")
	f.facts.ContextLength = contextLength(lm)
	f.facts.Vocabulary = number(lm, "vocab_size")
	f.facts.Hidden = number(lm, "hidden_size", "n_embd", "d_model")
	f.facts.Layers = number(lm, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
	f.facts.Heads = number(lm, "num_attention_heads", "n_head", "n_heads")
	if f.facts.KVHeads = number(lm, "num_key_value_heads", "num_kv_heads"); f.facts.KVHeads == 0 {
		f.facts.KVHeads = f.facts.Heads
	}
	if f.facts.HeadDim = number(lm, "head_dim"); f.facts.HeadDim == 0 && f.facts.Heads > 0 {
		f.facts.HeadDim = f.facts.Hidden / f.facts.Heads
	}
	f.facts.layerTypes(lm)
	if f.facts.ContextLength == 0 {
		f.add(idContext, "config.json does not say how long a sequence may be")
	}
}

// contextKeys are what configurations call the longest sequence.
var contextKeys = []string{"max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_target_positions", "max_sequence_length", "seq_len"}

// contextLength is the smallest of them.
func contextLength(lm map[string]any) int64 {
	var least int64
	for _, key := range contextKeys {
		if n := number(lm, key); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// layerTypes counts the layers by how they attend.
func (f *Facts) layerTypes(lm map[string]any) {
	f.FullAttentionLayers = f.Layers
	types, _ := lm["layer_types"].([]any)
	if len(types) == 0 {
		return
	}
	f.FullAttentionLayers = 0
	for _, t := range types {
		switch s, _ := t.(string); {
		case s == "full_attention", s == "attention":
			f.FullAttentionLayers++
		case strings.HasPrefix(s, "sliding"):
			f.SlidingLayers++
		}
	}
	if f.SlidingLayers > 0 {
		f.SlidingWindow = number(lm, "sliding_window")
	}
}

// tokenizers are the sets of files that make a tokenizer; one set is enough.
var tokenizers = [][]string{{"tokenizer.json"}, {"tokenizer.model"}, {"vocab.json", "merges.txt"}, {"tekken.json"}, {"spiece.model"}, {"sentencepiece.bpe.model"},
	{"tiktoken.model"}, {"qwen.tiktoken"}, {"vocab.txt"}}

// readTokenizer looks at what turns text into tokens, and says where it ends.
func (f *folder) readTokenizer() {
	if !slices.ContainsFunc(tokenizers, f.hasAll) {
		f.add(idTokenizer, "neither tokenizer.json nor tokenizer.model nor vocab.json with merges.txt is there")
	}
	config := f.readJSON("tokenizer_config.json", maxConfigBytes)
	if _, there := f.files["tokenizer_config.json"]; !there {
		f.add(idTokenizerConfig, "tokenizer_config.json is not there")
	}
	template := config["chat_template"] != nil || f.hasAll([]string{"chat_template.jinja"}) || f.readJSON("chat_template.json", maxConfigBytes)["chat_template"] != nil
	_, there := f.files["tokenizer_config.json"]
	if !template && (config != nil || !there) { // else there may be one
		f.add(idTemplate, "no chat template is there: neither in tokenizer_config.json nor as chat_template.jinja or chat_template.json")
	}
	generation := f.readJSON("generation_config.json", maxConfigBytes)
	if _, there := f.files["generation_config.json"]; !there {
		f.add(idGeneration, "generation_config.json is not there")
	}
	f.specialTokens(generation)
}

func (f *folder) hasAll(names []string) bool {
	for _, n := range names {
		if _, there := f.files[n]; !there {
			return false
		}
	}
	return true
}

// specialTokens checks the tokens that end texts.
func (f *folder) specialTokens(generation map[string]any) {
	if f.config == nil {
		return
	}
	named, said := false, map[string]bool{}
	for _, from := range []struct {
		name  string
		table map[string]any
	}{{"generation_config.json", generation}, {"config.json", f.config}, {"config.json", languageModel(f.config)}} {
		list, isList := from.table["eos_token_id"].([]any)
		if !isList {
			list = []any{from.table["eos_token_id"]}
		}
		for _, v := range list {
			n, ok := v.(json.Number)
			if !ok {
				continue
			}
			named = true
			if said[from.name+n.String()] {
				continue
			}
			said[from.name+n.String()] = true
			id, err := n.Int64()
			if err != nil || id < 0 || f.facts.Vocabulary > 0 && id >= f.facts.Vocabulary {
				f.add(idSpecial, "%s ends texts with token %s, the vocabulary has %s", from.name, quoted(n.String()), tokens(f.facts.Vocabulary))
			}
		}
	}
	if !named {
		f.at(schemas.SeverityWarning, idSpecial, "neither generation_config.json nor config.json names a token that ends texts")
	}
}

func tokens(n int64) string {
	if n == 0 {
		return "none of that number"
	}
	return fmt.Sprintf("%d tokens", n)
}
