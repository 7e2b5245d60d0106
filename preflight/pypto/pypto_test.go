package pypto

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"assay/preflight"
	"assay/schemas"
)

func worst(findings []schemas.Finding, id string) schemas.Severity {
	order := []schemas.Severity{schemas.SeverityError, schemas.SeverityUnknown, schemas.SeverityWarning, schemas.SeverityInfo, schemas.SeverityPass}
	for _, s := range order {
		if slices.ContainsFunc(findings, func(f schemas.Finding) bool { return f.ID == id && f.Severity == s }) {
			return s
		}
	}
	return ""
}

func inCatalog(t *testing.T, findings []schemas.Finding) {
	t.Helper()
	for _, f := range findings {
		if !slices.ContainsFunc(Catalog(), func(e preflight.Entry) bool { return e.ID == f.ID }) {
			t.Errorf("%s stands in no catalog", f.ID)
		}
		if f.Severity == schemas.SeverityError && f.Remedy == "" {
			t.Errorf("%s says no remedy", f.ID)
		}
	}
}

func TestCommand(t *testing.T) {
	no, yes := false, true
	q := Facts{Architecture: "Qwen3ForCausalLM", ContextLength: 40960, Env: map[string]string{"PYPTO_CACHE": "1"}}
	ds := Facts{Architecture: "DeepseekV4ForCausalLM", Quantization: "compressed-tensors", Index: &yes}
	eight := "--devices 0,1,2,3,4,5,6,7"
	with := func(f Facts, change func(*Facts)) Facts { change(&f); return f }
	for name, c := range map[string]struct {
		args  string
		facts Facts
		id    string
		want  schemas.Severity
	}{
		"plain":                {"", q, "pypto.command", "pass"},
		"misspelt":             {"--max-model-length 7", q, "pypto.option", "error"},
		"other version":        {"--zebra-crossing", q, "pypto.option", "unknown"},
		"in the help":          {"--zebra-crossing", with(q, func(f *Facts) { f.Help = "[--zebra-crossing]" }), "pypto.option", ""},
		"not in the help":      {"--zebra-crossing", with(q, func(f *Facts) { f.Help = "--model" }), "pypto.option", "error"},
		"no number":            {"--max-num-seqs many", q, "pypto.option", "error"},
		"no value":             {"--max-num-seqs --profile", q, "pypto.option", "error"},
		"last has no value":    {"--max-num-seqs", q, "pypto.option", "error"},
		"value of a flag":      {"--profile=yes", q, "pypto.option", "error"},
		"twice":                {"--dtype a --dtype b", q, "pypto.option", "warning"},
		"backend":              {"--backend gpu", q, "pypto.option", "error"},
		"ring of three":        {"--ring-heap 1,2,3", q, "pypto.option", "error"},
		"ring of four":         {"--ring-heap 1,2,3,4", q, "pypto.option", ""},
		"utilization":          {"--npu-memory-utilization 9", q, "pypto.option", "error"},
		"placeholder":          {"--port {port}", q, "pypto.option", ""},
		"role alone":           {"--pd-role prefill", q, "pypto.option", "error"},
		"prompt":               {"--prompt x", q, "pypto.offline", "error"},
		"generation":           {`--generate-config {"max_new_tokens":5,"top_k":null}`, q, "pypto.config", ""},
		"top_k":                {`--generate-config {"top_k":0}`, q, "pypto.config", "error"},
		"top_p":                {`--generate-config {"top_p":0}`, q, "pypto.config", "error"},
		"temperature":          {`--generate-config {"temperature":-1}`, q, "pypto.config", "error"},
		"seed":                 {`--generate-config {"seed":-1}`, q, "pypto.config", "error"},
		"no tokens":            {`--generate-config {"max_new_tokens":0}`, q, "pypto.config", "error"},
		"stop is text":         {`--generate-config {"stop":"x"}`, q, "pypto.config", "error"},
		"stream is text":       {`--generate-config {"stream":"false"}`, q, "pypto.config", "error"},
		"unknown key":          {`--generate-config {"max_tokens":3}`, q, "pypto.config", "error"},
		"two objects":          {`--generate-config {}{}`, q, "pypto.config", "error"},
		"null object":          {`--generate-config null`, q, "pypto.config", "error"},
		"samples":              {`--generate-config {"temperature":1}`, q, "pypto.sampling", "warning"},
		"samples with a seed":  {`--generate-config {"temperature":1,"seed":3}`, q, "pypto.sampling", ""},
		"mtp":                  {`--speculative-config {"method":"mtp","num_speculative_tokens":1} --dp 8 --ep 8 ` + eight, ds, "pypto.speculative", ""},
		"mtp of none":          {`--speculative-config {"method":"mtp","num_speculative_tokens":0}`, ds, "pypto.speculative", "error"},
		"dspark of 3":          {`--speculative-config {"method":"dspark","num_speculative_tokens":3}`, ds, "pypto.speculative", "error"},
		"other method":         {`--speculative-config {"method":"eagle"}`, ds, "pypto.speculative", "error"},
		"both ways":            {`--num-speculative-tokens 1 --speculative-config {"method":"mtp","num_speculative_tokens":1}`, ds, "pypto.speculative", "error"},
		"for Qwen":             {`--speculative-config {"method":"mtp","num_speculative_tokens":1}`, q, "pypto.speculative", "error"},
		"Qwen, two devices":    {"--tp 2 --devices 0,1", q, "pypto.topology", ""},
		"Qwen, one missing":    {"--tp 2 --device 0", q, "pypto.topology", "error"},
		"DeepSeek":             {"--dp 8 --ep 8 " + eight, ds, "pypto.topology", ""},
		"DeepSeek, tensor":     {"--dp 8 --ep 8 --tp 2 " + eight, ds, "pypto.topology", "error"},
		"DeepSeek, seven":      {"--dp 8 --ep 8 --devices 0,1,2,3,4,5,6", ds, "pypto.topology", "error"},
		"DeepSeek, threshold":  {"--dp 8 --ep 8 --long-prefill-token-threshold 1000 " + eight, ds, "pypto.topology", "error"},
		"dspark":               {`--speculative-config {"method":"dspark","num_speculative_tokens":7} --tp 4 --ep 8 --dp 2 --block-size 32 ` + eight, ds, "pypto.topology", ""},
		"dspark, block":        {`--speculative-config {"method":"dspark","num_speculative_tokens":7} --tp 4 --ep 8 --dp 2 ` + eight, ds, "pypto.topology", "error"},
		"device twice":         {"--tp 2 --devices 0,0", q, "pypto.devices", "error"},
		"no device":            {"--devices a", q, "pypto.devices", "error"},
		"device of the host":   {"--device 1", with(q, func(f *Facts) { f.Devices = []int{0, 1} }), "pypto.devices", ""},
		"not of the host":      {"--device 2", with(q, func(f *Facts) { f.Devices = []int{0, 1} }), "pypto.devices", "error"},
		"not visible":          {"--tp 2 --devices 0,1", with(q, func(f *Facts) { f.Env = map[string]string{"ASCEND_RT_VISIBLE_DEVICES": "3"} }), "pypto.devices", "error"},
		"other family":         {"", with(q, func(f *Facts) { f.Architecture = "LlamaForCausalLM" }), "pypto.architecture", "error"},
		"not quantized":        {"", with(ds, func(f *Facts) { f.Quantization = "fp8" }), "pypto.architecture", "error"},
		"DeepSeek, no index":   {"", with(ds, func(f *Facts) { f.Index = &no }), "pypto.architecture", "error"},
		"Qwen, no index":       {"", with(q, func(f *Facts) { f.Index, f.Shards = &no, 2 }), "pypto.architecture", "error"},
		"Qwen, one shard":      {"", with(q, func(f *Facts) { f.Index, f.Shards = &no, 1 }), "pypto.architecture", ""},
		"longer than model":    {"--max-model-len 50000", q, "pypto.context", "error"},
		"profile level":        {"--profile --profile-level e2e,all", q, "pypto.profile", "error"},
		"level alone":          {"--profile-level e2e", q, "pypto.profile", "error"},
		"profile":              {"--profile --profile-output /p --profile-level VERBOSE", q, "pypto.profile", "warning"},
		"profile of its own":   {"", with(q, func(f *Facts) { f.Env = map[string]string{"SA_PROFILE_MAIN_PID": "1"} }), "pypto.profile", "error"},
		"no cache":             {"", with(q, func(f *Facts) { f.Env = nil }), "pypto.compile-cache", "info"},
		"cache":                {"", q, "pypto.compile-cache", ""},
		"bypassed":             {"", with(q, func(f *Facts) { f.Env = map[string]string{"PYPTO_CACHE": "1", "PYPTO_PROG_BUILD_DIR": "/b"} }), "pypto.compile-cache", "warning"},
		"no folder":            {"--use-compile-cache", with(q, func(f *Facts) { f.Env, f.Help = nil, "--use-compile-cache" }), "pypto.compile-cache", "warning"},
		"longer than default":  {"", with(q, func(f *Facts) { f.Load.Sequence = 1025 }), "pypto.max-model-len", "error"},
		"fits":                 {"--max-model-len 2048", with(q, func(f *Facts) { f.Load.Sequence = 1025 }), "pypto.max-model-len", ""},
		"queues":               {"", with(q, func(f *Facts) { f.Load.Concurrency = 17 }), "pypto.max-num-seqs", "warning"},
		"does not queue":       {"", with(q, func(f *Facts) { f.Load.Concurrency = 16 }), "pypto.max-num-seqs", ""},
		"prefix caching":       {"", q, "pypto.prefix-cache", "info"},
		"prefix caching off":   {"--no-enable-prefix-caching", q, "pypto.prefix-cache", ""},
		"mode of two switches": {"--no-enable-chunked-prefill", q, "pypto.command", "pass"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Command("s", append([]string{"numactl", "-N0", "/opt/bin/pypto-serving", "--model", "/m"}, strings.Fields(c.args)...), c.facts)
			if have := worst(got, c.id); have != c.want {
				t.Errorf("%s is %q, want %q: %+v", c.id, have, c.want, got)
			}
			inCatalog(t, got)
		})
	}
	if got := Command("s", []string{"pypto-serving"}, q); worst(got, "pypto.model") != "error" {
		t.Errorf("%+v", got)
	}
}

func TestCompileCache(t *testing.T) {
	write := func(dir string, names ...string) string {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "w", dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(root, "w", dir, n), []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return root
	}
	for name, c := range map[string]struct {
		dir  string
		want schemas.Severity
		text string
	}{
		"whole":      {write("k", "distributed_meta.json", "fingerprint.txt"), "pass", "1 compiled"},
		"no meta":    {write("k", "fingerprint.txt"), "warning", "not whole"},
		"no print":   {write("k", "distributed_meta.json"), "warning", "out of date"},
		"broken off": {write("k.tmp.33"), "warning", "broken off"},
		"none":       {filepath.Join(t.TempDir(), "none"), "info", "yet"},
		"no folder":  {filepath.Join(write("k", "f"), "w", "k", "f"), "unknown", "cannot be read"},
	} {
		got := CompileCache("s", c.dir)
		if len(got) != 1 || got[0].Severity != c.want || !strings.Contains(got[0].Message, c.text) {
			t.Errorf("%s: %+v", name, got)
		}
		inCatalog(t, got)
	}
}

func FuzzCommand(f *testing.F) {
	f.Add("pypto-serving\x00--model\x00/m\x00--generate-config\x00{\"top_k\":1}\x00--speculative-config={}\x00--devices\x000,1")
	f.Add("--tp\x00-1\x00--ring-heap=,\x00--x")
	f.Fuzz(func(t *testing.T, argv string) {
		got := Command("s", strings.Split(argv, "\x00"), Facts{Architecture: "Qwen3Model"})
		if len(got) == 0 {
			t.Fatal("no finding at all")
		}
		inCatalog(t, got)
	})
}
