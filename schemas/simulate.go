package schemas

import "slices"

// StampSimulated is the stamp source of a result that no clock stamped.
const StampSimulated = "simulated"

// GivesResult says whether stages of the kind publish a result: result.json with
// conditions.json beside it, which the report, claims and tables are made from.
func GivesResult(kind string) bool {
	return kind == "measure" || kind == "simulate" || kind == "sweep" || kind == "compare"
}

// readFields say how simulate reads a workload file; they are those of measure.
func readFields() []Field {
	return []Field{
		{Name: "workload_form", Type: TypeString, Enum: WorkloadForms, Doc: "form of the file; default: told from its first lines"},
		{Name: "timestamp_unit", Type: TypeString, Enum: []string{"s", "ms", "us"}, Doc: "unit of bare timestamps; default: the form's own"},
		{Name: "window", Type: TypeStringList, Doc: "from and to, in the workload's own time: only arrivals in [from, to) are simulated"},
		{Name: "speed", Type: TypeFloat, Default: 1.0, Min: bound(1e-6), Max: bound(1e6), Doc: "arrivals are this much faster than written"},
		{Name: "max_input", Type: TypeInt, Min: bound(1), Doc: "longest prompt taken from the file, tokens"},
		{Name: "max_output", Type: TypeInt, Min: bound(1), Doc: "longest output taken from the file, tokens"},
		{Name: "max_total", Type: TypeInt, Min: bound(2), Doc: "most tokens of prompt and output together"},
		{Name: "over_length", Type: TypeString, Default: "refuse", Enum: []string{"refuse", "drop", "clip"}, Doc: "what becomes of rows over a limit"},
	}
}

func isReadField(name string) bool {
	return slices.ContainsFunc(readFields(), func(f Field) bool { return f.Name == name })
}

// systemFields describe a serving system, simulated or emulated.
func systemFields() []Field {
	return []Field{
		{Name: "policy", Type: TypeString, Required: true, Enum: []string{"serverlessllm", "serverlessllm-plus", "aegaeon"}, Doc: "how requests are placed and models switched"},
		{Name: "device", Type: TypeString, Default: "h100", Doc: "accelerator of every worker"},
		{Name: "workers", Type: TypeInt, Default: 16.0, Min: bound(1), Max: bound(10000), Doc: "number of devices"},
		{Name: "prefill_workers", Type: TypeInt, Min: bound(1), Max: bound(10000), Doc: "how many of them prefill, under aegaeon; default: 6 of 16"},
		{Name: "latencies", Type: TypeTableList, Doc: "coefficients of base models, in seconds; default: coefficients fitted to published profiles", Fields: []Field{
			{Name: "model", Type: TypeString, Required: true, Doc: "base model"},
			{Name: "prefill", Type: TypeScalarList, Required: true, Doc: "c0, c1, c2 of c0 + c1 t + c2 s: t is the sum of the context lengths, s that of their squares"},
			{Name: "decode", Type: TypeScalarList, Required: true, Doc: "c0, c1, c2 of c0 + c1 t + c2 B: B is the batch size"},
			{Name: "source", Type: TypeString, Required: true, Doc: "where they come from"},
		}},
		{Name: "batch_term", Type: TypeString, Default: "actual", Enum: []string{"actual", "artifact"}, Doc: "batch size in the decode fit: the true one, or the -1 of the published artifact"},
		{Name: "bandwidth_gb_per_s", Type: TypeFloat, Default: 16.0, Min: bound(1e-3), Max: bound(1e6), Doc: "from host to device, for weights and KV"},
		{Name: "memory_gb", Type: TypeFloat, Min: bound(1), Max: bound(1e6), Doc: "memory of a device; default: that of the accelerator"},
		{Name: "switch_overhead", Type: TypeDuration, Default: "0s", Doc: "added to every switch of models"},
		{Name: "patience", Type: TypeDuration, Default: "15s", Doc: "a request without a token fails after it"},
		{Name: "work_stealing", Type: TypeBool, Default: false, Doc: "aegaeon: idle decode workers take batches over"},
		{Name: "work_stealing_min_batch_gap", Type: TypeInt, Default: 2.0, Min: bound(2), Max: bound(1000), Doc: "least difference of batches between giver and taker"},
		{Name: "nodes", Type: TypeInt, Default: 1.0, Min: bound(1), Max: bound(10000), Doc: "nodes that share the devices out evenly; a request stays on one"},
		{Name: "replicas", Type: TypeInt, Default: 1.0, Min: bound(1), Max: bound(10000), Doc: "nodes that each model is placed on"},
		{Name: "routing", Type: TypeString, Default: "least-outstanding", Enum: []string{"least-outstanding", "round-robin"}, Doc: "how one of a model's nodes is chosen for a request"},
		{Name: "placement", Type: TypeString, Default: "least-loaded", Enum: []string{"least-loaded", "round-robin"}, Doc: "how the nodes of a model are chosen"},
		{Name: "model_cache_gb", Type: TypeFloat, Default: 0.0, Min: bound(0), Max: bound(1e6), Doc: "host memory of a node for weights; 0: all models fit"},
	}
}

// servingFields are the keys of an emulated engine's system.
func servingFields() []Field {
	return append(systemFields(),
		Field{Name: "tpot", Type: TypeDuration, Default: "100ms", Doc: "time per output token that steers the quotas of aegaeon"},
		Field{Name: "load_gb_per_s", Type: TypeFloat, Min: bound(0), Max: bound(1e6), Doc: "from storage into the host memory of a node, when a model is deployed; 0: at once; default: bandwidth_gb_per_s"},
	)
}

func simulateKind() KindSpec {
	spec := KindSpec{Name: "simulate", Scope: ScopeTrial, Doc: "runs a workload through a model of a multi-model serving system", Outputs: []string{"requests", "result"}, Fields: []Field{
		{Name: "workload", Type: TypePath, Required: true, Doc: "file of requests: request_id,model,base_model,arrival_ms,input_tokens,output_tokens, or arrivals in a form that measure reads"},
		{Name: "models", Type: TypeInt, Min: bound(1), Max: bound(1000), Doc: "number of models that requests of a form without models are given to, at random"},
	}}
	spec.Fields = append(spec.Fields, systemFields()...)
	spec.Fields = append(spec.Fields,
		Field{Name: "profiles", Type: TypePath, Doc: "folder of latency profiles MODEL/DEVICE/i<input>b<batch>.json; default: latencies, or else coefficients fitted to published ones"},
		Field{Name: "tokens", Type: TypeBool, Default: true, Doc: "archive the time of every token, beside the first and the last"},
		sloField(),
	)
	spec.Fields = append(spec.Fields, readFields()...)
	return spec
}
