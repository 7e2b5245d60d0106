package schemas

// StampSimulated is the stamp source of a result that no clock stamped.
const StampSimulated = "simulated"

// GivesResult says whether stages of the kind publish a result: result.json with
// conditions.json beside it, which the report, claims and tables are made from.
func GivesResult(kind string) bool { return kind == "measure" || kind == "simulate" }

func simulateKind() KindSpec {
	return KindSpec{Name: "simulate", Scope: ScopeTrial, Doc: "runs a workload through a model of a multi-model serving system", Outputs: []string{"requests", "result"}, Fields: []Field{
		{Name: "workload", Type: TypePath, Required: true, Doc: "file of requests: request_id,model,base_model,arrival_ms,input_tokens,output_tokens, or arrivals in a form that measure reads"},
		{Name: "models", Type: TypeInt, Min: bound(1), Max: bound(1000), Doc: "number of models that requests of a form without models are given to, at random"},
		{Name: "policy", Type: TypeString, Required: true, Enum: []string{"serverlessllm", "serverlessllm-plus", "aegaeon"}, Doc: "how requests are placed and models switched"},
		{Name: "device", Type: TypeString, Default: "h100", Doc: "accelerator of every worker"},
		{Name: "workers", Type: TypeInt, Default: 16.0, Min: bound(1), Max: bound(10000), Doc: "number of devices"},
		{Name: "prefill_workers", Type: TypeInt, Min: bound(1), Max: bound(10000), Doc: "how many of them prefill, under aegaeon; default: 6 of 16"},
		{Name: "profiles", Type: TypePath, Doc: "folder of latency profiles MODEL/DEVICE/i<input>b<batch>.json; default: coefficients fitted to published ones"},
		{Name: "batch_term", Type: TypeString, Default: "actual", Enum: []string{"actual", "artifact"}, Doc: "batch size in the decode fit: the true one, or the -1 of the published artifact"},
		{Name: "bandwidth_gb_per_s", Type: TypeFloat, Default: 16.0, Min: bound(1e-3), Max: bound(1e6), Doc: "from host to device, for weights and KV"},
		{Name: "switch_overhead", Type: TypeDuration, Default: "0s", Doc: "added to every switch of models"},
		{Name: "patience", Type: TypeDuration, Default: "15s", Doc: "a request without a token fails after it"},
		{Name: "tokens", Type: TypeBool, Default: true, Doc: "archive the time of every token, beside the first and the last"},
		sloField(),
	}}
}
