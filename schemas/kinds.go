package schemas

import "slices"

// sloField is shared by every kind that judges latencies.
func sloField() Field {
	return Field{Name: "slo", Type: TypeTable, Doc: "targets that qos and attainment are judged by", Fields: []Field{
		{Name: "ttft", Type: TypeDuration, Default: "10s", Doc: "time to first token, from the scheduled time"},
		{Name: "tpot", Type: TypeDuration, Default: "100ms", Doc: "time per output token"},
	}}
}

// WorkloadForms are the file forms that can be told or be named.
var WorkloadForms = []string{"aegaeon-synth", "aegaeon-requests", "azure", "burstgpt", "mooncake", "bailian", "trace", "sharegpt", "prompts", "text"}

func arrivalFields() []Field {
	return []Field{
		{Name: "process", Type: TypeString, Required: true, Enum: []string{"constant", "poisson", "gamma", "on-off", "ramp"}, Doc: "law of the arrivals"},
		{Name: "rate", Type: TypeFloat, Required: true, Min: bound(0), Max: bound(1e6), Doc: "requests per second; on-off: within a burst; ramp: at its start"},
		{Name: "shape", Type: TypeFloat, Min: bound(1e-3), Max: bound(1e6), Doc: "gamma: shape of the gaps; 1 is poisson, below it burstier, above it smoother"},
		{Name: "on", Type: TypeDuration, Doc: "on-off: length of a burst"},
		{Name: "off", Type: TypeDuration, Doc: "on-off: length of the pause after a burst"},
		{Name: "off_rate", Type: TypeFloat, Min: bound(0), Max: bound(1e6), Doc: "on-off: rate in the pause; default 0"},
		{Name: "to_rate", Type: TypeFloat, Min: bound(0), Max: bound(1e6), Doc: "ramp: rate at its end, and from then on"},
		{Name: "over", Type: TypeDuration, Doc: "ramp: time from rate to to_rate"},
	}
}

func lengthField(name, doc string) Field {
	return Field{Name: name, Type: TypeTable, Doc: doc, Fields: []Field{
		{Name: "dist", Type: TypeString, Default: "fixed", Enum: []string{"fixed", "uniform", "lognormal"}, Doc: "law of the lengths"},
		{Name: "tokens", Type: TypeInt, Min: bound(1), Max: bound(1e7), Doc: "fixed: the length"},
		{Name: "min", Type: TypeInt, Min: bound(1), Max: bound(1e7), Doc: "shortest; lognormal: what is shorter becomes this"},
		{Name: "max", Type: TypeInt, Min: bound(1), Max: bound(1e7), Doc: "longest; lognormal: what is longer becomes this"},
		{Name: "mean", Type: TypeFloat, Min: bound(1), Max: bound(1e7), Doc: "lognormal: mean before the limits"},
		{Name: "sigma", Type: TypeFloat, Min: bound(0), Max: bound(10), Doc: "lognormal: deviation of the logarithm; default 1"},
	}}
}

// Kinds describes the stage kinds, by name.
func Kinds() []KindSpec {
	return []KindSpec{
		{Name: "preflight", Scope: ScopeRun, Doc: "checks that everything is in place before anything is spent", Outputs: []string{"findings"}, Fields: []Field{
			{Name: "paths", Type: TypePathMap, Machine: true, Doc: "files and folders that must exist and be readable, by logical name"},
			{Name: "workload", Type: TypePath, Doc: "workload file that must be well formed"},
			{Name: "ports", Type: TypeScalarList, Machine: true, Doc: "TCP ports that must be free on loopback"},
			{Name: "disk", Type: TypeSize, Default: "256MiB", Doc: "room the store's file system must have"},
		}},
		{Name: "workload", Scope: ScopeTrial, Doc: "writes a seeded workload of the published synth form", Outputs: []string{"workload"}, Fields: append([]Field{
			{Name: "models", Type: TypeInt, Required: true, Min: bound(1), Max: bound(99), Doc: "number of models"},
			{Name: "rate", Type: TypeFloat, Required: true, Min: bound(0), Doc: "requests per second and model"},
			{Name: "duration", Type: TypeDuration, Required: true, Doc: "span of arrivals"},
			{Name: "per_repetition", Type: TypeBool, Default: true, Doc: "false: all repetitions share one seed, and so one workload"},
			{Name: "input_scale", Type: TypeFloat, Default: 1.0, Min: bound(1e-3), Max: bound(1e3), Doc: "factor of prompt lengths"},
			{Name: "output_scale", Type: TypeFloat, Default: 1.0, Min: bound(1e-3), Max: bound(1e3), Doc: "factor of output lengths"},
		}, lengthFields()...)},
		{Name: "command", Scope: ScopeTrial, Service: "optional", Doc: "runs any program in a private folder", Outputs: []string{"*"}, Fields: []Field{
			{Name: "argv", Type: TypeStringList, Required: true, Paths: true, Doc: "program and arguments; no shell"},
			{Name: "shell", Type: TypeBool, Default: false, Doc: "true: argv is one string for /bin/sh -c"},
			{Name: "env", Type: TypeStringMap, Secret: true, Paths: true, Doc: "environment variables set for the program"},
			{Name: "pass_env", Type: TypeStringList, Doc: "names of variables passed through from the caller; their values enter the key"},
			{Name: "inputs", Type: TypePathMap, Machine: true, Doc: "logical name -> file or folder; appears under that name in the private folder"},
			{Name: "outputs", Type: TypeStringMap, Doc: "output name -> path below the private folder; published all or nothing"},
			{Name: "tools", Type: TypeStringList, Doc: "programs whose content enters the key, beside argv[0]"},
			{Name: "reuse", Type: TypeBool, Default: false, Doc: "the program is pure: an equal key gives an equal result"},
			{Name: "seeded", Type: TypeBool, Default: false, Doc: "the program reads ASSAY_SEED, derived per repetition"},
			{Name: "ok_exit", Type: TypeScalarList, Doc: "exit codes that count as success (default 0)"},
		}},
		{Name: "warmup", Scope: ScopeTrial, Service: "required", Doc: "sends requests until a stated rule holds", Outputs: []string{"requests", "summary"}, Fields: []Field{
			{Name: "models", Type: TypeStringList, Doc: "model names; default: all that the service lists"},
			{Name: "api", Type: TypeString, Default: "completions", Enum: []string{"completions", "chat"}, Doc: "endpoint"},
			{Name: "input_tokens", Type: TypeInt, Default: 32.0, Min: bound(1), Max: bound(1e6), Doc: "prompt length"},
			{Name: "output_tokens", Type: TypeInt, Default: 8.0, Min: bound(1), Max: bound(1e6), Doc: "output length"},
			{Name: "count", Type: TypeInt, Default: 3.0, Min: bound(1), Max: bound(100000), Doc: "requests per model; with stable, the most that are sent"},
			{Name: "stable", Type: TypeTable, Doc: "stop earlier, once latency is stable", Fields: []Field{
				{Name: "within_percent", Type: TypeFloat, Required: true, Min: bound(0), Doc: "largest spread of E2E over the last n, in per cent of their mean"},
				{Name: "over", Type: TypeInt, Required: true, Min: bound(2), Max: bound(1000), Doc: "n"},
			}},
			{Name: "request_timeout", Type: TypeDuration, Default: "5m0s", Doc: "limit of one request"},
		}},
		loadKind(),
		graphsKind(),
		validateKind(),
		adoptKind(),
		{Name: "measure", Scope: ScopeTrial, Service: "required", Doc: "replays a workload and leaves one record per request", Outputs: []string{"schedule", "requests", "result", "observed"}, Fields: []Field{
			{Name: "workload", Type: TypePath, Doc: "file of arrivals with lengths; in open loop exactly one of workload and arrival, in other modes its times are not used"},
			{Name: "prompts", Type: TypePath, Doc: "file of prompts without times, sent as arrival or mode says"},
			{Name: "workload_form", Type: TypeString, Enum: WorkloadForms, Doc: "form of the file of workload or prompts; default: told from its first lines, except text, which is a prompt a line"},
			{Name: "arrival", Type: TypeTable, Doc: "generated arrivals in open loop, over all models", Fields: arrivalFields()},
			{Name: "mode", Type: TypeString, Enum: []string{ModeOpen, ModeClosed, ModeSequential, ModeSwitch}, Doc: "open: at absolute times (the default with arrivals); closed: concurrency; sequential: one at a time; switch: one at a time through every ordered pair of models"},
			{Name: "requests", Type: TypeInt, Min: bound(1), Max: bound(1e7), Doc: "number of requests; of a workload: the first so many; with duration in a closed loop: the most that are prepared (default: 20 a second and slot, 1000 to 200000)"},
			{Name: "duration", Type: TypeDuration, Doc: "span of generated arrivals, instead of requests; closed loop: no request is begun after this time"},
			{Name: "at_end", Type: TypeString, Enum: []string{"drain", "cut"}, Doc: "closed loop with duration: requests in flight when it is over are waited for (drain, the default) or cancelled and counted apart (cut)"},
			{Name: "rounds", Type: TypeInt, Default: 1.0, Min: bound(1), Max: bound(1000), Doc: "mode switch: times that each ordered pair is visited"},
			{Name: "steady", Type: TypeInt, Min: bound(1), Max: bound(1000), Doc: "mode switch: requests that follow each switch at once, to the same model: phase steady"},
			{Name: "concurrency", Type: TypeInt, Min: bound(1), Max: bound(60000), Doc: "closed loop: requests in flight"},
			{Name: "max_in_flight", Type: TypeInt, Min: bound(1), Max: bound(60000), Doc: "open loop: most requests in flight; one that is due waits, and queue_ms tells how long"},
			lengthField("input", "prompt lengths of generated requests, tokens"),
			lengthField("output", "output lengths of generated requests, and of prompts that state none, tokens"),
			{Name: "seeds", Type: TypeTable, Doc: "seeds to hold; default of each: the stage's own", Fields: []Field{
				{Name: "arrival", Type: TypeInt, Min: bound(0), Doc: "of arrival times"},
				{Name: "assignment", Type: TypeInt, Min: bound(0), Doc: "of models to requests"},
				{Name: "content", Type: TypeInt, Min: bound(0), Doc: "of lengths and prompts"},
				{Name: "order", Type: TypeInt, Min: bound(0), Doc: "of prompts and of pairs of models"},
			}},
			{Name: "turns", Type: TypeInt, Min: bound(1), Max: bound(1000), Doc: "prompts of conversations (sharegpt), on the chat endpoint: most turns of each, sent one after the answer to another with what the file says was said; requests, concurrency and arrivals count conversations then"},
			{Name: "think", Type: TypeTable, Doc: "with turns: time from an answer to the next turn; default none", Fields: []Field{
				{Name: "time", Type: TypeDuration, Required: true, Doc: "mean"},
				{Name: "dist", Type: TypeString, Default: "fixed", Enum: []string{"fixed", "exponential"}, Doc: "law, drawn from the arrival seed"},
			}},
			{Name: "shuffle", Type: TypeBool, Default: false, Doc: "prompts of a file without times in an order drawn from the order seed"},
			{Name: "warmup", Type: TypeDuration, Doc: "beginning of the run that is not in the steady window; with neither this nor drain the window is detected"},
			{Name: "drain", Type: TypeDuration, Doc: "end of the run, up to its last answer, that is not in the steady window"},
			{Name: "max_input", Type: TypeInt, Min: bound(1), Doc: "longest prompt taken from a file, tokens"},
			{Name: "max_output", Type: TypeInt, Min: bound(1), Doc: "longest output taken from a file, tokens"},
			{Name: "max_total", Type: TypeInt, Min: bound(2), Doc: "most tokens of prompt and output together, such as the model's limit"},
			{Name: "over_length", Type: TypeString, Default: "refuse", Enum: []string{"refuse", "drop", "clip"}, Doc: "what becomes of rows over a limit; how many is counted"},
			{Name: "models", Type: TypeStringList, Doc: "names the service knows, in the order of the workload's models; default: all that it lists, sorted by name"},
			{Name: "api", Type: TypeString, Default: "completions", Enum: []string{"completions", "chat"}, Doc: "endpoint"},
			{Name: "speed", Type: TypeFloat, Default: 1.0, Min: bound(1e-6), Max: bound(1e6), Doc: "arrivals are this much faster than written"},
			{Name: "window", Type: TypeStringList, Doc: "from and to, in the workload's own time: only arrivals in [from, to) are sent"},
			{Name: "timestamp_unit", Type: TypeString, Enum: []string{"s", "ms", "us"}, Doc: "unit of bare timestamps; default: the form's own, which for aegaeon-requests is s"},
			{Name: "ignore_eos", Type: TypeBool, Default: true, Doc: "hold the service to the asked output length, where it can be"},
			{Name: "request_timeout", Type: TypeDuration, Default: "10m0s", Doc: "limit of one request"},
			{Name: "idle_timeout", Type: TypeDuration, Default: "2m0s", Doc: "longest silence within a stream"},
			{Name: "max_connections", Type: TypeInt, Default: 4096.0, Min: bound(1), Max: bound(60000), Doc: "connections this client may open; a request beyond it is client_resource"},
			{Name: "predial", Type: TypeInt, Default: 64.0, Min: bound(0), Max: bound(60000), Doc: "connections made before the first arrival, no more than there are requests; closed loop: at least the concurrency; 0: none"},
			{Name: "calibrate", Type: TypeBool, Default: true, Doc: "after a measurement of 4 s or more, measure a server of known times in the same shape, for a twentieth of the time and at most 1 s"},
			{Name: "require_client_ok", Type: TypeBool, Default: false, Doc: "fail unless the client can be believed: sent on time, with exact stamps"},
			{Name: "per_repetition", Type: TypeBool, Default: true, Doc: "false: all repetitions send the same prompts"},
			{Name: "allow_errors", Type: TypeFloat, Default: 1.0, Min: bound(0), Max: bound(1), Doc: "share of requests that may fail before the stage does; when all of them do, it always does"},
			{Name: "length_tolerance", Type: TypeFloat, Default: 0.02, Min: bound(0), Max: bound(1), Doc: "share by which the tokens of a prompt or an answer may differ, on average, from those asked before a finding says so"},
			{Name: "require_lengths", Type: TypeBool, Default: false, Doc: "fail when they differ by more; for prompts counted by the service's tokenizer, before anything is sent"},
			sloField(),
			ObserveField(),
		}},
		simulateKind(),
		sweepKind(),
		compareKind(),
		{Name: "report", Scope: ScopeRun, Doc: "folds the results of measure and simulate stages into tables", Outputs: []string{"summary", "table"}, Fields: nil},
	}
}

// Engines describes the engines, by name.
func Engines() []EngineSpec {
	start := []Field{
		{Name: "command", Type: TypeStringList, Machine: true, Paths: true, Doc: "program and arguments that start it; ${service.NAME.port} style values come as ASSAY_PORT in the environment and {port} in an argument"},
		{Name: "url", Type: TypeURL, Doc: "attach to a running service instead"},
		{Name: "env", Type: TypeStringMap, Secret: true, Paths: true, Doc: "environment variables set for the process"},
		{Name: "cwd", Type: TypePath, Machine: true, Doc: "working folder of the process"},
		{Name: "port", Type: TypePort, Unkeyed: true, Doc: "fixed port; default: a free one is chosen on loopback"},
		{Name: "ready_path", Type: TypeString, Doc: "HTTP path that answers 200 when it is ready"},
		{Name: "ready_log", Type: TypeString, Doc: "regular expression a line of its log matches when it is ready"},
		{Name: "ready_timeout", Type: TypeDuration, Default: "10m0s", Unkeyed: true, Doc: "limit of start-up"},
		{Name: "stop_signal", Type: TypeString, Default: "TERM", Enum: []string{"TERM", "INT", "QUIT"}, Unkeyed: true, Doc: "signal that asks it to stop"},
		{Name: "stop_grace", Type: TypeDuration, Default: "30s", Unkeyed: true, Doc: "time it has to stop before it is killed"},
	}
	start = append(append(start, apiKeyField()), askingFields()...)
	attachOrStart := [][]string{{"command", "url"}}
	return []EngineSpec{
		{Name: "emulated", Doc: "the built-in engine: real HTTP, made-up latencies", OneOf: [][]string{{"models", "aegaeon_config"}}, Fields: []Field{
			{Name: "models", Type: TypeTableList, Doc: "models it serves", Fields: []Field{
				{Name: "name", Type: TypeString, Required: true, Doc: "name requests use; with count, the part before the number"},
				{Name: "count", Type: TypeInt, Default: 1.0, Min: bound(1), Max: bound(1000), Doc: "this many alike models: above 1 each name gets a number of two or more digits, from 00"},
				{Name: "prefill_base", Type: TypeDuration, Default: "20ms", Doc: "fixed part of prefill"},
				{Name: "prefill_per_token", Type: TypeDuration, Default: "50µs", Doc: "prefill per prompt token"},
				{Name: "decode_per_token", Type: TypeDuration, Default: "10ms", Doc: "time per output token after the first"},
				{Name: "jitter", Type: TypeFloat, Default: 0.0, Min: bound(0), Max: bound(1), Doc: "each time is multiplied by 1 + jitter * u, u seeded in [-1, 1]"},
				{Name: "max_model_len", Type: TypeInt, Default: 32768.0, Min: bound(1), Doc: "prompt and output tokens together"},
				{Name: "base", Type: TypeString, Doc: "with serving: base model that it is an alias of; default: qwen2.5-7b, yi-9b or llama2-13b by its place, as in a workload without base models"},
				{Name: "undeployed", Type: TypeBool, Doc: "with serving: no node has it until it is deployed"},
			}},
			{Name: "aegaeon_config", Type: TypePath, Doc: "Aegaeon's YAML configuration, in place of models: models, devices, engines, policies, work stealing and CUDA graphs are taken from it"},
			graphModeField(),
			graphArchiveField(),
			{Name: "personality", Type: TypeString, Enum: []string{"openai", "aegaeon", "pypto", "vllm"}, Doc: "whose endpoints, checks and errors it has; default: openai"},
			{Name: "serving", Type: TypeTable, Doc: "model of the system that requests contend for, as in simulate, in place of the latencies of models; time passes time_scale times as fast", Fields: servingFields()},
			{Name: "cuda_graph", Type: TypeTable, Doc: "aegaeon: graphs of decode steps", Fields: []Field{
				{Name: "mode", Type: TypeString, Default: "off", Enum: []string{"off", "save", "load"}, Doc: "save: write an archive of each model that decodes; load: check the archives of all models, and decode faster"},
				{Name: "archive_dir", Type: TypeString, Machine: true, Doc: "folder of archives, for save and load"},
				{Name: "batch_sizes", Type: TypeScalarList, Doc: "batch sizes with a graph; default: 1, 2, 4, 8"},
				{Name: "seq_len_bucket", Type: TypeInt, Default: 2048.0, Min: bound(1), Doc: "longest sequence that a graph serves"},
				{Name: "base_address", Type: TypeInt, Default: 70368744177664.0, Min: bound(2097152), Doc: "of the memory region, a multiple of 2 MiB"},
				{Name: "region_size_bytes", Type: TypeInt, Default: 274877906944.0, Min: bound(2097152), Doc: "of the memory region, a multiple of 2 MiB"},
				{Name: "scratch_size_bytes", Type: TypeInt, Default: 4294967296.0, Min: bound(2097152), Doc: "less than the region, a multiple of 2 MiB"},
				{Name: "decode_factor", Type: TypeFloat, Default: 0.8, Min: bound(0.01), Max: bound(1), Doc: "load: times of decode steps are multiplied by it"},
			}},
			{Name: "limits", Type: TypeTable, Doc: "aegaeon: rates of each model, averages over 60 s; a request beyond them is refused with status 429", Fields: []Field{
				{Name: "max_requests_per_second", Type: TypeFloat, Default: 0.0, Min: bound(0), Doc: "0: no limit"},
				{Name: "max_tokens_per_second", Type: TypeFloat, Default: 0.0, Min: bound(0), Doc: "of prompts and of what may be generated; 0: no limit"},
			}},
			{Name: "profile", Type: TypeTable, Doc: "pypto, vllm: profiling may be started over HTTP", Fields: []Field{
				{Name: "output", Type: TypeString, Required: true, Machine: true, Doc: "folder, or file that ends in .json, of the trace"},
				{Name: "level", Type: TypeString, Default: "e2e,kernel", Doc: "pypto: of e2e, kernel, verbose, separated by commas"},
			}},
			{Name: "load_time", Type: TypeDuration, Doc: "time from its start until it listens, divided by time_scale; default: none"},
			{Name: "time_scale", Type: TypeFloat, Default: 1.0, Min: bound(1e-3), Max: bound(1e3), Doc: "all times are divided by it"},
			{Name: "seed", Type: TypeInt, Default: 0.0, Min: bound(0), Doc: "seed of jitter and token ids"},
			{Name: "tokens_per_chunk", Type: TypeInt, Default: 1.0, Min: bound(1), Max: bound(1000), Doc: "tokens in each event"},
			{Name: "fault", Type: TypeTable, Doc: "misbehaviour on purpose, for tests of clients", Fields: []Field{
				{Name: "kind", Type: TypeString, Required: true, Enum: []string{"die", "hang", "refuse", "sse_error", "cut", "split_utf8", "http_500", "http_429", "no_done", "slow_start", "lie_usage"}, Doc: "what goes wrong"},
				{Name: "after_requests", Type: TypeInt, Default: 0.0, Min: bound(0), Doc: "requests served properly first"},
				{Name: "after_tokens", Type: TypeInt, Default: 2.0, Min: bound(0), Doc: "tokens of the request sent before it happens"},
				{Name: "delay", Type: TypeDuration, Default: "0s", Doc: "for slow_start: time before the listener opens"},
			}},
			{Name: "ready_timeout", Type: TypeDuration, Default: "30s", Unkeyed: true, Doc: "limit of start-up"},
			{Name: "stop_grace", Type: TypeDuration, Default: "10s", Unkeyed: true, Doc: "time it has to stop before it is killed"},
			{Name: "port", Type: TypePort, Unkeyed: true, Doc: "fixed port; default: a free one is chosen on loopback"},
			apiKeyField(),
		}},
		{Name: "openai", Doc: "any OpenAI-compatible server", Fields: start, OneOf: attachOrStart},
		{Name: "aegaeon", Doc: "Aegaeon, started by command or attached to", Fields: append(slices.Clone(start), aegaeonFields()...), OneOf: attachOrStart},
		{Name: "pypto", Doc: "PyPTO Serving, started by command or attached to", Fields: start, OneOf: attachOrStart},
	}
}
