package aegaeon

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	return append(append(formEntries(), modelEntries()...), budgetEntries()...)
}

func entry(id string, s schemas.Severity, checks, remedy string, pitfalls ...int) preflight.Entry {
	return preflight.Entry{ID: id, Subject: "configuration", Severity: s, Checks: checks, Remedy: remedy, When: preflight.Before, Pitfalls: pitfalls}
}

func ruled(rule string, e preflight.Entry) preflight.Entry {
	e.Rule = rule
	return e
}

const bad, doubtful = schemas.SeverityError, schemas.SeverityWarning

func formEntries() []preflight.Entry {
	const schema = "the engine reads its configuration as it was meant"
	return []preflight.Entry{
		ruled(schema, entry("aegaeon.read", schemas.SeverityUnknown, "the configuration can be read", "check the file")),
		ruled(schema, entry("aegaeon.yaml", bad, "the configuration is one YAML document with server, models and devices, of a size that a configuration has", "correct it")),
		ruled(schema, entry("aegaeon.config", bad, "the configuration as a whole is as the engine wants it", "correct what the message names")),
		ruled(schema, entry("aegaeon.duplicate-key", bad, "no key stands in a table twice", "remove one of the two: the engine takes the last one silently")),
		ruled(schema, entry("aegaeon.type", bad, "every value is of its key's type", "write the type that is wanted")),
		ruled(schema, entry("aegaeon.value", bad, "every number is within its limits", "correct the number")),
		ruled(schema, entry("aegaeon.null", bad, "no key is there without a value", "give a value, or leave the key out")),
		ruled(schema, entry("aegaeon.device", bad, "every device has a name and its memory", "give it both")),
		ruled(schema, entry("aegaeon.stealing", doubtful, "decode engines are two or more where they steal work", "use more, or leave it out")),
		entry("aegaeon.yaml11", bad, "no text is a boolean, number, date or null to YAML 1.1, and no number is octal, to the base of 60, or text to it", "quote text, write numbers in plain digits", 32),
		entry("aegaeon.graph-mode", bad, "the graph mode stands in quotes and is one of off, save and load", "write it in quotes", 32),
		entry("aegaeon.unknown-key", bad, "every key is one that the engine knows", "correct or remove it: the engine drops it silently", 34),
		entry("aegaeon.engines", bad, "engines are either simple ones, or prefill and decode ones of at least one each", remedyEngines, 13),
		entry("aegaeon.tensor-parallel", bad, "the tensor parallel size is 1, in the file and on the command line", "set it to 1", 14),
		entry("aegaeon.policy", bad, "policies are ones that there are", "write one that the message lists", 35),
		entry("aegaeon.dummy-weights", bad, "weights are real ones", "set dummy_weights to false and unset AEGAEON_DUMMY_WEIGHTS", 36),
		entry("aegaeon.slabs-default", bad, "the number of slabs is set", "set cpu_num_slabs", 16),
		entry("aegaeon.model-cache-default", doubtful, "the size of the cache of weights is set", "set model_cache_size_gb", 20),
		entry("aegaeon.graph-engines", bad, "graphs are used with prefill and decode engines", "use those, or mode: 'off'", 52),
		entry("aegaeon.archive-dir", bad, "a folder of archives is named for save and load; a warning where it is relative", "set archive_dir", 53),
		entry("aegaeon.bucket", bad, "one longest sequence is given for save and load", "write seq_len_buckets: [N]", 49),
		entry("aegaeon.batch-sizes", bad, "batch sizes are listed; a warning where they are not ascending", "list those that will be met", 52),
		entry("aegaeon.alignment", bad, "the memory region and its parts are multiples of 2 MiB", "round to a multiple of 2097152", 54),
		entry("aegaeon.scratch", bad, "scratch is smaller than the region", "make it smaller", 54),
		entry("aegaeon.save-load", bad, "graphs are loaded with the configuration that they were saved with, but for the mode", "load with that one, or save a new archive", 51),
		entry("aegaeon.command-option", doubtful, "the command has no option that the configuration wins over", "set the key in the configuration", 33),
		entry("aegaeon.limits", bad, "no variable limits rates", "unset it", 40),
		entry("aegaeon.visible-devices", bad, "the two variables that choose devices agree", "set both to the same list", 11),
		entry("aegaeon.nodes-equal", schemas.SeverityInfo, "says that the equality of several nodes cannot be seen from one", "compare files and variables of all nodes", 11, 37, 59),
	}
}

func modelEntries() []preflight.Entry {
	return []preflight.Entry{
		entry("aegaeon.model-name", bad, "models are listed, with a name of its own each", "give every model a name of its own", 31),
		entry("aegaeon.model-id", bad, "all models have an id of their own, or none has", "give all an id, or none", 31),
		entry("aegaeon.model-path", bad, "every model has an absolute path; of a source run's configuration as it is started, one that leads to a folder", "set path to the folder of the checkpoint", 30),
		entry("aegaeon.startup-models", bad, "models to start with are in the list, once each", "name models of the list", 31),
		entry("aegaeon.profile-alias", bad, "names of folders of profiles are relative and do not lead upwards", "write a name below the folder of profiles", 29),
		ruled("a sequence fits the model", entry("aegaeon.context", bad, "a model's longest sequence is no longer than its checkpoint allows", "lower max_model_len")),
		entry("aegaeon.params", bad, "params is in units of 2^30 parameters, not a count or in millions", "divide by 2^30, or leave params out", 26),
		entry("aegaeon.profile-missing", bad, "of a service that is started in a folder with profiles: every model has usable latency profiles for every device, at least three points that determine a fit", remedyProfiles, 23),
		entry("aegaeon.profile-file", bad, "of a service that is started in a folder with profiles: every profile parses and has three samples or more, finite and not negative", "measure the point again", 24),
		entry("aegaeon.profile-device", bad, "of a service that is started in a folder with profiles: they are of the GPU that there is; unknown where it is not known", "use profiles that were made on this GPU", 25),
	}
}

func budgetEntries() []preflight.Entry {
	return []preflight.Entry{
		entry("aegaeon.memory", bad, "slabs and cache of weights fit the host's free memory", "lower cpu_num_slabs or model_cache_size_gb", 16),
		entry("aegaeon.shm", bad, "slabs and cache of weights fit free shared memory", "lower them, or enlarge /dev/shm", 17),
		entry("aegaeon.memlock", schemas.SeverityUnknown, "slabs and cache of weights fit the limit of locked memory; a warning where they do not", "raise it before Ray is started", 18),
		entry("aegaeon.model-cache", bad, "the largest model and those that start-up loads fit the cache of weights; a warning where not all do", "raise model_cache_size_gb", 20),
		entry("aegaeon.gpu-memory", bad, "the two largest models leave memory of a GPU for keys and values", "use smaller models or a larger GPU", 21),
		entry("aegaeon.gpu-headroom", doubtful, "a GPU has room for work space beside the weights", "use smaller models or a larger GPU", 22),
		entry("aegaeon.kv-slabs", bad, "slabs hold the keys and values of all requests at once", "raise cpu_num_slabs", 15),
		entry("aegaeon.graph-shapes", bad, "graphs serve the longest request; a warning where they do not serve the largest batch", "save graphs of the shapes that will be met", 52),
		entry("aegaeon.cpus", bad, "there are processors for all workers", "lower worker_num_cpus", 10),
		entry("aegaeon.gpus", bad, "there are visible GPUs for all workers", "configure fewer engines", 10),
		entry("aegaeon.nodes", bad, "nnodes is the number of hosts", "set nnodes to it", 12),
	}
}
