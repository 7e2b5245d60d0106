package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"assay/schemas"
)

// single turns the small checkpoint into one of a single file.
func single(m fstest.MapFS) {
	without(first, second, "model.safetensors.index.json")(m)
	m["model.safetensors"] = &fstest.MapFile{Data: weights(nil, append(layer(0), layer(1)...)...), ModTime: made}
}

// alone is a checkpoint of a single file with this header and n bytes of data.
func alone(header string, n int) func(fstest.MapFS) {
	return func(m fstest.MapFS) {
		single(m)
		m["model.safetensors"] = raw(header, n)
	}
}

func many(edits ...func(fstest.MapFS)) func(fstest.MapFS) {
	return func(m fstest.MapFS) {
		for _, e := range edits {
			e(m)
		}
	}
}

const prepacked = "pypto-deepseek-v4-stacked-r8.safetensors"

func pack(metadata map[string]string, at time.Time) *fstest.MapFile {
	return &fstest.MapFile{Data: weights(metadata, bf16("stacked", 4)), ModTime: at}
}

// faults are changes of the small checkpoint, each with what is said of it: "ID" or
// "severity ID" where it is not the worst of the catalog, then what the message holds.
var faults = []struct {
	name  string
	edit  func(fstest.MapFS)
	id    string
	says  string
	level schemas.Severity
}{
	{"an empty folder of links", with("x.bin", link("../blobs/none")), idDangling, "x.bin", ""},
	{"a folder of a cache", many(with("snapshots/a/config.json", content("{}")), with("blobs/b", content("x"))), idFolder, "revisions", ""},
	{"a pointer", with(second, content(pointerBegins+"v1\noid sha256:0\nsize 9\n")), idPointer, second, ""},
	{"a pointer for the tokenizer", with("tokenizer.json", content(pointerBegins+"v1\n")), idPointer, "tokenizer.json", ""},
	{"a shard of no bytes", with(second, content("")), idEmpty, second, ""},
	{"an empty config", with("config.json", content("")), idEmpty, "config.json", ""},
	{"a download under way", with("model-00003-of-00003.safetensors.incomplete", content("x")), idIncomplete, "not ended", ""},
	{"a download left over", with(second+".part", content("x")), idIncomplete, "nevertheless", schemas.SeverityWarning},
	{"something of another program", with("notes.txt.tmp", content("x")), idIncomplete, "may be a download", schemas.SeverityWarning},
	{"a download in the hub's folder", with(".cache/huggingface/download/aa.bb.incomplete", content("x")), idIncomplete, "1 downloads", schemas.SeverityWarning},
	{"a download in another hub's folder", with("._____temp/x", content("x")), idIncomplete, "1 downloads", schemas.SeverityWarning},
	{"no config", without("config.json"), idConfig, "config.json", ""},
	{"config cut off", edit("config.json", "}", ""), idJSON, "config.json", ""},
	{"config is a list", with("config.json", content("[]")), idJSON, "no JSON object", ""},
	{"config is null", with("config.json", content("null")), idJSON, "null", ""},
	{"config and more", with("config.json", content("{} {}")), idJSON, "after the object", ""},
	{"a deep tokenizer config", with("tokenizer_config.json", content(`{"chat_template": `+strings.Repeat("[", 9999))), idJSON, "64 deep", ""},
	{"a large config", with("config.json", content(strings.Repeat(" ", maxConfigBytes+1))), idLimit, "bytes", ""},
	{"no architecture", edit("config.json", `"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",`, ""), idArchitecture, "neither", ""},
	{"a model type only", edit("config.json", `"architectures": ["Qwen3ForCausalLM"],`, ""), idArchitecture, "qwen3", schemas.SeverityWarning},
	{"no longest sequence", edit("config.json", `"max_position_embeddings": 40960,`, ""), idContext, "how long", ""},
	{"no tokenizer", without("tokenizer.json"), idTokenizer, "tokenizer.model", ""},
	{"half a tokenizer", many(without("tokenizer.json"), with("vocab.json", content("{}"))), idTokenizer, "merges.txt", ""},
	{"no tokenizer config", many(without("tokenizer_config.json"), with("chat_template.jinja", content("x"))), idTokenizerConfig, "tokenizer_config.json", ""},
	{"no chat template", with("tokenizer_config.json", content(`{"eos_token": "x"}`)), idTemplate, "chat template", ""},
	{"no generation config", without("generation_config.json"), idGeneration, "generation_config.json", ""},
	{"an end outside the vocabulary", with("generation_config.json", content(`{"eos_token_id": [9, 10]}`)), idSpecial, `"10", the vocabulary has 10 tokens`, ""},
	{"no end", many(with("generation_config.json", content("{}")), edit("config.json", `, "eos_token_id": 9`, "")), idSpecial, "ends texts", schemas.SeverityWarning},
	{"no weights", without(first, second, "model.safetensors.index.json"), idWeights, "no safetensors file", ""},
	{"no tensor", alone("{}", 0), idWeights, "no tensor", ""},
	{"pickles alone", many(without(first, second, "model.safetensors.index.json"), with("pytorch_model.bin", content("x"))), idPickle, "pytorch_model.bin", ""},
	{"no index", without("model.safetensors.index.json"), idIndexMissing, "2 safetensors files", ""},
	{"an index of nothing", with("model.safetensors.index.json", content(`{"weight_map": {}}`)), idIndex, "empty", ""},
	{"an index that leads out", edit("model.safetensors.index.json", first, "../"+first), idIndex, "no file of the folder", ""},
	{"an index of numbers", with("model.safetensors.index.json", content(`{"weight_map": {"a": 1}}`)), idIndex, `"1"`, ""},
	{"a wrong total size", edit("model.safetensors.index.json", `"total_size":9`, `"total_size":8`), idIndexSize, "the shards hold", ""},
	{"a shard is missing", without(second), idShard, second, ""},
	{"a shard and the index are missing", without(second, "model.safetensors.index.json"), idShard, "shard 2 of 2", ""},
	{"all shards are missing", without(first, second), idShard, first, ""},
	{"a shard too many", with("consolidated.safetensors", &fstest.MapFile{Data: weights(nil, bf16("z", 1)), ModTime: made}), idShardUnlisted, "consolidated", ""},
	{"a length near 2^64", with(second, content("\xff\xff\xff\xff\xff\xff\xff\xff{}")), idLimit, "18446744073709551615", ""},
	{"a length over the limit", with(second, content("\x00\x00\x00\x40\x00\x00\x00\x00{}")), idLimit, "more than the", ""},
	{"a file of 5 bytes", with(second, content("12345")), idHeader, "5 bytes", ""},
	{"a header of 1 byte", with(second, content("\x01\x00\x00\x00\x00\x00\x00\x00{}")), idHeader, "the shortest", ""},
	{"a header cut off", with(second, content("\xff\x00\x00\x00\x00\x00\x00\x00{}")), idTruncated, "255 bytes", ""},
	{"not a header", alone("xx", 0), idHeader, "want '{'", ""},
	{"a deep header", alone(`{"a":`+strings.Repeat("[", 100_000), 0), idHeader, "'{' is expected", ""},
	{"a deep shape", alone(`{"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}}`, 1), idHeader, "whole number", ""},
	{"a negative dimension", alone(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), idHeader, "whole number", ""},
	{"a fraction", alone(`{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), idHeader, "whole number", ""},
	{"a number beyond 64 bits", alone(`{"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}}`, 1), idHeader, "64 bits", ""},
	{"a leading zero", alone(`{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}`, 1), idHeader, "begins with 0", ""},
	{"17 dimensions", alone(`{"a":{"dtype":"U8","shape":[`+strings.Repeat("1,", 16)+`1],"data_offsets":[0,1]}}`, 1), idHeader, "more than 16", ""},
	{"one offset", alone(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}}`, 1), idHeader, "1 data_offsets", ""},
	{"no dtype", alone(`{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1), idHeader, "lacks one", ""},
	{"an unknown key", alone(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}}`, 1), idHeader, `unknown key "x"`, ""},
	{"a field twice", alone(`{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), idHeader, "twice", ""},
	{"a tensor twice", alone(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), idHeader, `"a" stands in the header twice`, ""},
	{"metadata that is no text", alone(`{"__metadata__":{"a":1}}`, 0), idHeader, "is expected", ""},
	{"metadata twice", alone(`{"__metadata__":{"a":"1","a":"1"}}`, 0), idHeader, "metadata twice", ""},
	{"something after the header", alone(`{} {}`, 0), idHeader, "after the header's end", ""},
	{"a text without end", alone(`{"a`, 0), idHeader, "does not end", ""},
	{"a control character", alone("{\"\n\":{}}", 0), idHeader, "control character", ""},
	{"not UTF-8", alone("{\"\xff\":{}}", 0), idHeader, "UTF-8", ""},
	{"a wrong escape", alone(`{"\q":{}}`, 0), idHeader, "escape", ""},
	{"a long name", alone(`{"`+strings.Repeat("n", MaxNameBytes+1)+`":{}}`, 0), idHeader, "a name has", ""},
	{"data cut off", func(m fstest.MapFS) { m[second].Data = m[second].Data[:len(m[second].Data)-1] }, idTruncated, "not all there", ""},
	{"data too long", func(m fstest.MapFS) { m[second].Data = append(m[second].Data, 0) }, idOffsets, "1 bytes stand after", ""},
	{"a gap", alone(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), idOffsets, "from offset 0 to 1", ""},
	{"an overlap", alone(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), idOffsets, `inside tensor "a"`, ""},
	{"offsets the other way round", alone(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), idOffsets, "before it begins", ""},
	{"a shape of another size", alone(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), idTensor, "takes 8 bytes", ""},
	{"a shape beyond counting", alone(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,9],"data_offsets":[0,4]}}`, 4), idTensor, "no size that can be counted", ""},
	{"half a byte", alone(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1), idTensor, "no size", ""},
	{"an unknown type", alone(`{"a":{"dtype":"Q9","shape":[18446744073709551615],"data_offsets":[0,1]}}`, 1), idDtype, `"Q9"`, ""},
	{"a tensor missing", edit("model.safetensors.index.json", `"model.norm.weight"`, `"model.norm.bias"`), idTensorMissing, "model.norm.bias", ""},
	{"a tensor in another shard", func(m fstest.MapFS) {
		edit("model.safetensors.index.json", `"model.norm.weight":"`+second, `"model.norm.weight":"`+first)(m)
	}, idTensorMissing, first, ""},
	{"a tensor not listed", edit("model.safetensors.index.json", `,"model.norm.weight":"`+second+`"`, ""), idTensorUnlisted, "model.norm.weight", ""},
	{"a tensor in two shards", func(m fstest.MapFS) {
		m[second] = &fstest.MapFile{Data: weights(nil, append(layer(1), shape{"model.norm.weight", "F32", []uint64{8}}, bf16("model.embed_tokens.weight", 0))...), ModTime: made}
	}, idTensorTwice, "model.embed_tokens.weight", ""},
	{"another number of layers", edit("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 3`), idLayers, "says 3 layers, the weights have 2", ""},
	{"another number of heads", edit("config.json", `"num_key_value_heads": 2`, `"num_key_value_heads": 4`), idHeads, "have 8 rows", ""},
	{"prepacked from who knows", with(prepacked, pack(map[string]string{"format": "x"}, made)), idPrepacked, "no source_fingerprint", ""},
	{"prepacked before", with(prepacked, pack(map[string]string{"format": "x", "source_fingerprint": "f"}, made.Add(-time.Hour))), idStale, "older than", ""},
	{"prepacked in part", with(prepacked, raw(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 1)), idTruncated, prepacked, ""},
}

// problems are the findings that are no pass.
func problems(list []schemas.Finding) []schemas.Finding {
	return slices.DeleteFunc(slices.Clone(list), func(f schemas.Finding) bool { return f.Severity == schemas.SeverityPass })
}

func check(m fs.FS) Result { return Check(context.Background(), "model m", Source{FS: m}) }

func TestEachFaultIsFoundAndNothingElse(t *testing.T) {
	shown := map[string]bool{idWhole: true, idUnreadable: true, idParams: true, idFingerprint: true} // have tests of their own
	for _, c := range faults {
		m := small()
		c.edit(m)
		got := check(m).Findings
		entry := entryOf(c.id)
		if c.level == "" {
			c.level = entry.Severity
		}
		found := slices.ContainsFunc(got, func(f schemas.Finding) bool {
			return f.ID == c.id && f.Severity == c.level && strings.Contains(f.Message, c.says) && f.Subject == "model m" && f.Remedy != ""
		})
		if !found {
			t.Errorf("%s: no %s %s that says %q in\n%s", c.name, c.level, c.id, c.says, told(got))
		}
		passed := got[len(got)-1].ID == idWhole
		if refuses := c.level == schemas.SeverityError; passed == refuses {
			t.Errorf("%s: passed: %t\n%s", c.name, passed, told(got))
		}
		for _, f := range problems(got) {
			if byID()[f.ID].ID == "" {
				t.Errorf("%s: %s stands in no catalog", c.name, f.ID)
			}
			if f.ID != c.id && (c.id != idTensorMissing || f.ID != idTensorUnlisted) {
				t.Errorf("%s: also %s: %s", c.name, f.ID, f.Message)
			}
		}
		shown[c.id] = true
	}
	for _, e := range Catalog() {
		if !shown[e.ID] {
			t.Errorf("no input shows %s", e.ID)
		}
	}
}

func told(list []schemas.Finding) string {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "  %s %s: %s\n", f.Severity, f.ID, f.Message)
	}
	return b.String()
}

// Whatever is intact is told to be so, without a single warning.
func TestIntactCheckpointsPass(t *testing.T) {
	for name, edit := range map[string]func(fstest.MapFS){
		"two shards": func(fstest.MapFS) {},
		"one file":   single,
		"one file indexed": func(m fstest.MapFS) {
			single(m)
			m["model.safetensors.index.json"] = indexOf(map[string][]shape{"model.safetensors": append(layer(0), layer(1)...)})
		},
		"other tokenizer":   many(without("tokenizer.json"), with("vocab.json", content("{}")), with("merges.txt", content("x"))),
		"template file":     many(with("tokenizer_config.json", content("{}")), with("chat_template.jinja", content("x"))),
		"template document": many(with("tokenizer_config.json", content("{}")), with("chat_template.json", content(`{"chat_template": "x"}`))),
		"Python's numbers":  edit("config.json", `"head_dim": 4`, `"head_dim": 4, "limit": [0.0, Infinity, -Infinity, NaN], "x": "\"NaN"`),
		"prepacked":         with(prepacked, pack(map[string]string{"format": "x", "source_fingerprint": "f"}, made)),
		"links":             many(with("blobs/1", content(config)), with("config.json", link("blobs/1"))),
		"another folder":    with("original/consolidated.safetensors", content("")),
		"empty tensors":     alone(`{"a":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},"c":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, 1),
		"spaces":            alone(" { } ", 0),
	} {
		m := small()
		edit(m)
		got := check(m)
		if name == "spaces" { // not allowed before the first bracket
			if got.Findings[0].ID != idHeader {
				t.Errorf("%s: %s", name, told(got.Findings))
			}
			continue
		}
		if len(problems(got.Findings)) > 0 || got.Findings[len(got.Findings)-1].ID != idWhole {
			t.Errorf("%s:\n%s", name, told(got.Findings))
		}
	}
}

func TestFacts(t *testing.T) {
	got := check(small()).Facts
	want := Facts{Architecture: "Qwen3ForCausalLM", ModelType: "qwen3", Files: 2, Parameters: 2*(128+64+4) + 80 + 8, Bytes: 2*(2*(128+64+4)+80) + 32,
		Dtypes: map[string]int64{"BF16": 2*(128+64+4) + 80, "F32": 8}, ContextLength: 40960, Vocabulary: 10, Hidden: 8, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 4, FullAttentionLayers: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A multimodal configuration keeps the language model's part in a table, and may
// leave out what is usual for its type; the weights tell it.
func TestFactsOfMultimodalModels(t *testing.T) {
	m := small()
	vision := []shape{bf16("vision_tower.encoder.layers.26.self_attn.k_proj.weight", 99, 99)}
	list := append(append(vision, bf16("language_model.model.embed_tokens.weight", 10, 8)), layer(0)...)
	for i := range 3 {
		list = append(list, shape{fmt.Sprintf("language_model.model.layers.%d.mlp.up.weight", i), "BF16", []uint64{1}})
	}
	without(first, second, "model.safetensors.index.json")(m)
	m["model.safetensors"] = &fstest.MapFile{Data: weights(nil, list...), ModTime: made}
	m["config.json"] = content(`{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 8], "vision_config": {"num_hidden_layers": 27},
 "text_config": {"model_type": "gemma3_text", "hidden_size": 8, "num_hidden_layers": 3, "sliding_window": 1024, "max_position_embeddings": 131072, "seq_length": 32768,
 "layer_types": ["sliding_attention", "linear_attention", "full_attention"]}}`)
	got := check(m)
	if p := problems(got.Findings); len(p) > 0 {
		t.Errorf("%s", told(p))
	}
	f := got.Facts
	f.Parameters, f.Bytes, f.Dtypes = 0, 0, nil
	want := Facts{Architecture: "Gemma3ForConditionalGeneration", ModelType: "gemma3_text", Files: 1, ContextLength: 32768, Vocabulary: 10, Hidden: 8, Layers: 3,
		Heads: 4, KVHeads: 2, HeadDim: 4, FullAttentionLayers: 1, SlidingLayers: 1, SlidingWindow: 1024}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
}

func TestAFolderThatCannotBeReadIsUnknown(t *testing.T) {
	for name, fsys := range map[string]fs.FS{"none": failing{}, "a file": failing{small(), "tokenizer_config.json"}, "a header": failing{small(), second}} {
		got := check(fsys).Findings
		if p := problems(got); len(p) == 0 || p[0].ID != idUnreadable || p[0].Severity != schemas.SeverityUnknown || strings.Contains(p[0].Message, "/secret/place") {
			t.Errorf("%s: %s", name, told(got))
		}
	}
}

// failing is a file system that cannot read one file, or nothing at all.
type failing struct {
	fs.FS
	name string
}

func (f failing) Open(name string) (fs.File, error) {
	if f.FS == nil || name == f.name {
		return nil, &fs.PathError{Op: "open", Path: "/secret/place/" + name, Err: errors.New("stale file handle")}
	}
	return f.FS.Open(name)
}

func TestFindingsAreFew(t *testing.T) {
	m := small()
	list := map[string][]shape{}
	for i := range 300 {
		list[fmt.Sprintf("s%03d.safetensors", i)] = []shape{bf16(fmt.Sprintf("t%d", i), 1)}
	}
	m["model.safetensors.index.json"] = indexOf(list)
	var said []schemas.Finding
	for _, f := range check(m).Findings {
		if f.ID == idShard {
			said = append(said, f)
		}
	}
	if len(said) != maxOfOne+1 || said[maxOfOne].Message != "the same of 295 more" {
		t.Errorf("%s", told(said))
	}
}

func TestFoldersOfTooManyFilesAreRefused(t *testing.T) {
	m := fstest.MapFS{}
	for i := range MaxFiles + 1 {
		m[fmt.Sprintf("f%d", i)] = &fstest.MapFile{}
	}
	if got := check(m).Findings; len(got) != 1 || got[0].ID != idLimit {
		t.Errorf("%s", told(got))
	}
}

func TestPinned(t *testing.T) {
	a, b := schemas.DigestOf([]byte("a")), schemas.DigestOf([]byte("b"))
	for _, c := range []struct {
		got      schemas.Digest
		err      error
		severity schemas.Severity
		says     string
	}{
		{a, nil, schemas.SeverityPass, "level header"},
		{b, nil, schemas.SeverityError, string(b)},
		{"", &fs.PathError{Op: "open", Path: "/secret/place", Err: fs.ErrPermission}, schemas.SeverityUnknown, "permission denied"},
	} {
		f := Pinned("model m", "header", a, c.got, c.err)
		if f.ID != idFingerprint || f.Severity != c.severity || !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, "/secret") {
			t.Errorf("%+v, want %s %q", f, c.severity, c.says)
		}
	}
}

func TestParams(t *testing.T) {
	f := Facts{Parameters: 4_022_468_096} // 3.746 x 2^30
	for _, c := range []struct {
		declared float64
		severity schemas.Severity
		says     string
	}{
		{3.746, schemas.SeverityPass, ""}, {3.7, schemas.SeverityPass, ""}, {4.022, schemas.SeverityWarning, "units of 10^9"},
		{4e9, schemas.SeverityError, "as a count"}, {9, schemas.SeverityError, "3.746"}, {0, schemas.SeverityError, "params is 0"}, {-3.7, schemas.SeverityError, ""},
	} {
		if got := Params("model m", c.declared, f); got.ID != idParams || got.Severity != c.severity || !strings.Contains(got.Message, c.says) {
			t.Errorf("%g: %+v, want %s %q", c.declared, got, c.severity, c.says)
		}
	}
	if got := Params("model m", 1, Facts{}); got.Severity != schemas.SeverityUnknown {
		t.Errorf("%+v", got)
	}
}
