package preflight

// Pitfall is one way in which an hour on a GPU has been lost with Aegaeon and its
// CUDA graphs. Entries of the catalog name those that they look for.
type Pitfall struct {
	Number  int    `json:"number"`
	Symptom string `json:"symptom"` // what is seen, and what it comes from
	// Reason says what no check here can tell and why, or what makes one needless.
	Reason string `json:"reason,omitempty"`
}

// Pitfalls lists them by number, from 1.
func Pitfalls() []Pitfall {
	list := pitfalls()
	for i := range list {
		list[i].Number = i + 1
	}
	return list
}

func pitfalls() []Pitfall {
	return append(append(environmentPitfalls(), configPitfalls()...), usePitfalls()...)
}

// environmentPitfalls are 1 to 12: how the engine is built and where it runs.
func environmentPitfalls() []Pitfall {
	return []Pitfall{
		{Symptom: "the build or the import ends with torch missing: the engine's setup script needs it installed first"},
		{Symptom: "aegaeon.ops is missing or has an undefined symbol: it was built against another torch or CUDA than is installed"},
		{Symptom: "the Rust loader of weights cannot be imported: it was not built"},
		{Symptom: "imports from inside vLLM fail: the installed version is not the one that the engine was written for"},
		{Symptom: "creating the conda environment stops at a locked database",
			Reason: "it happens while the environment is made, before there is an experiment to check; a conda cache folder of one's own avoids it"},
		{Symptom: "CUDA refuses the driver, the GPU or the distribution: one of them is older than the CUDA route supports"},
		{Symptom: "extensions fail to compile or load: the CUDA toolkit is of another version than torch was built with"},
		{Symptom: "no Ray cluster is found: the address is left to be found automatically and nothing runs there"},
		{Symptom: "placement waits for a resource node_0, node_1, ...: Ray was started without the resources that name its nodes"},
		{Symptom: "actors stay pending for ever: the workers ask for more processors or GPUs than the node has"},
		{Symptom: "another GPU than meant is used, or none: the two variables that choose devices differ, or nodes number theirs differently"},
		{Symptom: "several nodes are waited for on one host: the number of nodes was set to the number of GPUs"},
	}
}

// configPitfalls are 13 to 37: the configuration, its budgets, profiles and models.
func configPitfalls() []Pitfall {
	return []Pitfall{
		{Symptom: "start-up refuses the engine counts: simple engines stand beside prefill and decode ones (which are 1 and 1 unless set to 0), or one of the two is missing"},
		{Symptom: "an assertion on the tensor parallel size: only 1 is supported"},
		{Symptom: "requests fail for want of free blocks on the CPU: there are too few slabs for the keys and values of what runs at once"},
		{Symptom: "start-up takes the host's memory or hangs: nothing was set, and 128 GiB of pinned memory is the default"},
		{Symptom: "shared memory runs full: /dev/shm of a container is small"},
		{Symptom: "memory cannot be pinned or registered: the limit of locked memory is low, and Ray inherits it"},
		{Symptom: "a cache file has the wrong size: it was left by an earlier service under the same name"},
		{Symptom: "deploying ends with status 507: the weights do not fit into the CPU cache, or all that is in it is in use"},
		{Symptom: "a memory error on the GPU before any request: nothing is left for keys and values after two models' weights"},
		{Symptom: "the GPU runs out of memory while loading: work space is not part of the engine's own estimate"},
		{Symptom: "no usable latency profile: the folder's name fits neither model nor device, or it holds no usable file"},
		{Symptom: "absurd latencies or a division by zero: a profile has fewer than three points, or values that are no times"},
		{Symptom: "decisions fit another GPU: the profile was made on another device than its folder says"},
		{Symptom: "memory is planned off by a factor of 2^30 or nearly: params is in units of 2^30 parameters, and was given as a count or in billions"},
		{Symptom: "counting parameters fails: the checkpoint has no safetensors files at its root, only pickles, or not all shards"},
		{Symptom: "special tokens repeat without end: the tokenizer, chat template or generation config is missing or belongs to another model"},
		{Symptom: "start-up refuses a profile's name: it is an absolute path or leads upwards"},
		{Symptom: "weights are downloaded unasked: a model's path is empty, relative or not there"},
		{Symptom: "start-up refuses the models: one to start with is not listed, a name stands twice, or only some have an id"},
		{Symptom: "the graph mode turns into false: an unquoted off is a boolean to the engine's YAML reader"},
		{Symptom: "an edit or an option of the command line has no effect: the file is read once, and wins over options"},
		{Symptom: "a key of a model has no effect: the engine drops the ones that it does not know, clocks included"},
		{Symptom: "start-up refuses a policy: its name is not one of those there are"},
		{Symptom: "quality and times mean nothing: placeholder weights are switched on in the file or the environment"},
		{Symptom: "nodes decide by different objectives: the variables that set them are not handed on to other nodes"},
	}
}

// usePitfalls are 38 to 60: requests, graphs, and what is kept of a run.
func usePitfalls() []Pitfall {
	return []Pitfall{
		{Symptom: "requests are refused with status 400 or 422: they sample, or have a field that the service does not know"},
		{Symptom: "requests are refused with status 400 or 503: the model has another name there, or no replica is ready"},
		{Symptom: "requests are refused with status 429 in the middle of a run: a rate limit is set"},
		{Symptom: "the first tokens come late: something between buffers streams, or a replica loads at its first request",
			Reason: "the client never goes through a proxy and archives every chunk with its time; a warm-up stage takes first requests and records them apart. What lies behind a service's own address cannot be seen from here"},
		{Symptom: "the count of outstanding requests stays above zero: requests whose client has gone go on"},
		{Symptom: "a port or a GPU is in use: another instance runs, and names of actors and files allow only one"},
		{Symptom: "an import fails and complains of NP_SUPPORTED_MODULES: the system's C++ library is found before the environment's"},
		{Symptom: "the hook's path is refused: it is not set, is relative, or does not lie beside Foundry's extension"},
		{Symptom: "a Boost library is not found: it is too old, or not on the loader's path"},
		{Symptom: "undefined symbol cuFuncGetName: the driver library that is loaded is too old"},
		{Symptom: "the wrong compatibility library is loaded: it belongs to another CUDA than torch does, or stands too late in the path"},
		{Symptom: "start-up wants one longest sequence: several buckets are given, as they are unless set"},
		{Symptom: "the archive is called incomplete: a model, rank or graph that the configuration registers is not in it"},
		{Symptom: "the archive is called obsolete, or its layout or bindings do not match: something has changed since it was saved"},
		{Symptom: "graphs are on and none is replayed: the engine is a simple one, the batch is not in the list, or the sequence is longer than the bucket"},
		{Symptom: "saving finds the folder not empty, or loading finds none"},
		{Symptom: "start-up refuses the memory region: an address or size is not a multiple of 2 MiB, or scratch is larger than the region"},
		{Symptom: "a worker aborts while loading graphs: packed kernels are missing or do not match, or memory was laid out differently"},
		{Symptom: "a deployment answers 200 and is partial: some nodes have failed",
			Reason: "the stage kind load reports it when it deploys (`load.deploy-partial`), and fails unless allow_partial is set"},
		{Symptom: "results are overwritten: outputs have fixed names",
			Reason: "nothing to check: every stage has a new folder of its own, and what it leaves is archived by content"},
		{Symptom: "failed requests look fast: their latencies are taken for measurements or left out silently",
			Reason: "nothing to check: outcomes are a closed list, failures are counted apart and never enter a distribution, and `assay verify` computes both again from the records"},
		{Symptom: "a second node loads another library: one path is used on all, and the file there differs"},
		{Symptom: "energy is empty or zero: the service's host cannot ask its GPUs"},
	}
}
