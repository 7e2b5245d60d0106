package aegaeon

import "math"

// form is what a key's value has to be.
type form string

const (
	wantInt    form = "a whole number"
	wantNumber form = "a number"
	wantBool   form = "true or false"
	wantText   form = "text"
	wantMode   form = "a graph mode in quotes"
	wantBytes  form = "a whole number, or a hexadecimal one in quotes"
	wantInts   form = "a list of whole numbers"
	wantTexts  form = "a list of texts"
	wantTable  form = "a table"
	wantTables form = "a list of tables"
)

// key is one that the engine reads.
type key struct {
	form     form
	min, max float64 // of numbers; both 0: any
	above    bool    // min itself is not allowed
	enum     []string
	enumID   string // of the finding where the value is none of enum
	null     bool   // may be null
	keys     map[string]key
	open     bool // other keys are kept
}

var topKeys = map[string]key{
	"server":  {form: wantTable, keys: serverKeys},
	"models":  {form: wantTables, keys: modelKeys},
	"devices": {form: wantTables, keys: deviceKeys, open: true, null: true},
}

func atLeast(low float64) key { return key{form: wantInt, min: low, max: math.MaxInt64} }

var serverKeys = map[string]key{
	"nnodes": atLeast(1), "num_engines": atLeast(0), "num_prefill_engines": atLeast(0), "num_decode_engines": atLeast(0),
	"tensor_parallel_size": atLeast(1), "worker_num_cpus": atLeast(1), "cpu_num_slabs": atLeast(1), "cpu_slab_size_bytes": atLeast(1),
	"model_cache_size_gb":  {form: wantNumber, min: 0, max: 1 << 20},
	"memory_utilization":   {form: wantNumber, min: 0, max: 1, above: true},
	"dummy_weights":        {form: wantBool},
	"decode_work_stealing": {form: wantBool}, "decode_work_stealing_min_batch_gap": atLeast(2),
	"model_placement_policy": {form: wantText, enum: []string{"least-loaded", "round-robin"}, enumID: "aegaeon.policy"},
	"request_routing_policy": {form: wantText, enum: []string{"least-outstanding", "round-robin"}, enumID: "aegaeon.policy"},
	"startup_models":         {form: wantTexts, null: true},
	"cuda_graph":             {form: wantTable, keys: graphKeys},
}

var graphKeys = map[string]key{
	"mode":        {form: wantMode, enum: []string{"off", "save", "load"}, enumID: "aegaeon.graph-mode"},
	"archive_dir": {form: wantText}, "strict": {form: wantBool},
	"batch_sizes":     {form: wantInts, min: 1, max: 1 << 20},
	"seq_len_buckets": {form: wantInts, min: 1, max: 1 << 30},
	"base_address":    {form: wantBytes}, "region_size_bytes": {form: wantBytes}, "scratch_size_bytes": {form: wantBytes},
}

var modelKeys = map[string]key{
	"name": {form: wantText}, "path": {form: wantText}, "profile": {form: wantText},
	"params":        {form: wantNumber, min: 0, max: 1 << 20, above: true, null: true},
	"max_model_len": {form: wantInt, min: 1, max: 1 << 30, null: true},
	"id":            {form: wantInt, null: true},
	"tool_parser":   {form: wantText, null: true},
}

var deviceKeys = map[string]key{
	"name": {form: wantText}, "profile": {form: wantText},
	"memory":    {form: wantNumber, min: 0, max: 1 << 20, above: true},
	"bandwidth": {form: wantNumber, min: 0, max: 1 << 20, above: true, null: true},
}
