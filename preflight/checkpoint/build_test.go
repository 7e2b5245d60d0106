package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing/fstest"
	"time"
)

// made is when the files of a test were written.
var made = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// shape describes a tensor of a file that a test builds.
type shape struct {
	name, dtype string
	dims        []uint64
}

func bf16(name string, dims ...uint64) shape { return shape{name, "BF16", dims} }

// head is the header of a file with these tensors, one after another, and how long
// their data is.
func head(metadata map[string]string, list ...shape) (header []byte, data int64) {
	doc := map[string]any{}
	if metadata != nil {
		doc["__metadata__"] = metadata
	}
	var at uint64
	for _, s := range list {
		n := dtypeBits[s.dtype] / 8
		for _, d := range s.dims {
			n *= d
		}
		doc[s.name] = map[string]any{"dtype": s.dtype, "shape": append([]uint64{}, s.dims...), "data_offsets": []uint64{at, at + n}}
		at += n
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return framed(string(b)), int64(at)
}

// framed puts the length in front of a header.
func framed(header string) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
}

func weights(metadata map[string]string, list ...shape) []byte {
	header, n := head(metadata, list...)
	return append(header, make([]byte, n)...)
}

// raw is a file of one header, as written, and n bytes of data.
func raw(header string, n int) *fstest.MapFile {
	return &fstest.MapFile{Data: append(framed(header), make([]byte, n)...), ModTime: made}
}

func content(text string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(text), ModTime: made}
}

// layer is a layer of attention with 4 heads of 4, 2 of them for keys.
func layer(i int) []shape {
	at := fmt.Sprintf("model.layers.%d.self_attn.", i)
	return []shape{bf16(at+"q_proj.weight", 16, 8), bf16(at+"k_proj.weight", 8, 8), bf16(at+"k_norm.weight", 4)}
}

const (
	first  = "model-00001-of-00002.safetensors"
	second = "model-00002-of-00002.safetensors"
	config = `{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 40960, "eos_token_id": 9}`
)

// small is a whole checkpoint of two shards.
func small() fstest.MapFS {
	one := append(layer(0), bf16("model.embed_tokens.weight", 10, 8))
	two := append(layer(1), shape{"model.norm.weight", "F32", []uint64{8}})
	m := fstest.MapFS{
		"config.json": content(config), "tokenizer.json": content(`{}`), "generation_config.json": content(`{"eos_token_id": [9, 8]}`),
		"tokenizer_config.json": content(`{"chat_template": "{{ messages }}"}`), "README.md": content(""),
		first: {Data: weights(nil, one...), ModTime: made}, second: {Data: weights(map[string]string{"format": "pt"}, two...), ModTime: made},
	}
	m["model.safetensors.index.json"] = indexOf(map[string][]shape{first: one, second: two})
	return m
}

func indexOf(files map[string][]shape) *fstest.MapFile {
	weightMap := map[string]string{}
	var total int64
	for _, name := range slices.Sorted(maps.Keys(files)) {
		_, n := head(nil, files[name]...)
		total += n
		for _, s := range files[name] {
			weightMap[s.name] = name
		}
	}
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weightMap})
	if err != nil {
		panic(err)
	}
	return content(string(b))
}

// edit replaces text in a file.
func edit(name, old, new string) func(fstest.MapFS) {
	return func(m fstest.MapFS) {
		text := strings.Replace(string(m[name].Data), old, new, 1)
		if text == string(m[name].Data) {
			panic(name + " does not hold " + old)
		}
		m[name] = content(text)
	}
}

func without(names ...string) func(fstest.MapFS) {
	return func(m fstest.MapFS) {
		for _, n := range names {
			delete(m, n)
		}
	}
}

func with(name string, f *fstest.MapFile) func(fstest.MapFS) {
	return func(m fstest.MapFS) { m[name] = f }
}

func link(to string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
}
