package host

import (
	"assay/preflight"
	"assay/schemas"
)

const (
	bad, doubtful, open, note = schemas.SeverityError, schemas.SeverityWarning, schemas.SeverityUnknown, schemas.SeverityInfo

	starts   = "the engine starts on this host"
	steady   = "times of two runs can be compared"
	recorded = "facts are of the host as it is"
)

func entry(id string, s schemas.Severity, checks, remedy, rule string, pitfalls ...int) preflight.Entry {
	return preflight.Entry{ID: id, Subject: "host", Severity: s, Checks: checks, Remedy: remedy, When: preflight.Before, Rule: rule, Pitfalls: pitfalls}
}

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	return []preflight.Entry{
		entry("host.facts", open, "facts of the host that serves are there, and not of another", Record, recorded),
		entry("host.recorded", doubtful, "recorded facts are not older than 30 days", "record them again", recorded),
		entry("host.clock", doubtful, "the clock is kept in step", "start a time service", steady),
		entry("host.governor", doubtful, "processors run at full clock", "set the governor performance", steady),
		entry("host.environment", note, "says which variables that change results are set", "", steady, 37),
		entry("host.blocking", doubtful, "kernels are not waited for one by one", "unset CUDA_LAUNCH_BLOCKING", steady),
		entry("host.port", bad, "nothing listens on the service's port, where the host is a recorded one", "give another port", "", 43),
		entry("host.open-files", bad, "a service may have the connections of the planned load open", "raise ulimit -n", starts),
		entry("host.port-range", bad, "there are ports for the connections of the planned load", "widen net.ipv4.ip_local_port_range", starts),
		entry("host.memlock", open, "memory of keys, values and weights may be locked; a warning where it may not", "ulimit -l unlimited before Ray is started", "", 18),
		entry("host.shm-stale", bad, "shared memory holds nothing of an earlier service", "make sure that no service runs, then remove the file", "", 19, 43),
		entry("host.ray", bad, "a Ray cluster answers at its address", "start one, or set RAY_ADDRESS", "", 8),
		entry("host.gpus", open, "GPUs are known", Record, starts),
		entry("host.gpu-alike", doubtful, "GPUs are of one kind", "choose GPUs of one kind", "", 25),
		entry("host.gpu-busy", bad, "nothing else uses the GPUs", "end what runs there", "", 43),
		entry("host.driver", bad, "the driver is one that torch's CUDA takes", "install a later driver", "", 6),
		entry("host.capability", bad, "GPUs have compute capability 7.5 or later", "use a later GPU", "", 6),
		entry("host.distribution", bad, "the distribution and its C library are ones that torch's CUDA takes", "use a later distribution", "", 6),
		entry("host.visible-devices", bad, "the variables that choose GPUs agree, name each once, and enough", "set both to one list", "", 10, 11),
		entry("host.packages", open, "what is installed in the engine's Python environment is known", Record, starts),
		entry("host.torch", bad, "torch is installed, in the version that the engine is written for", reinstall, "", 1, 4),
		entry("host.vllm", bad, "vLLM is installed, in the version that the engine is written for", reinstall, "", 4),
		entry("host.aegaeon", bad, "the engine is installed", reinstall, starts),
		entry("host.ray-package", bad, "Ray is installed", reinstall, starts),
		entry("host.python", bad, "Python is of the version that the engine is built for", reinstall, "", 6),
		entry("host.toolkit", bad, "the CUDA toolkit is of torch's version; a warning where there is none", "use the toolkit of torch's CUDA", "", 7),
		entry("host.aegaeon-ops", bad, "the engine's extension is a library; a warning where it is older than torch", "build it again", "", 2),
		entry("host.weight-loader", bad, "the Rust loader of weights is a library; a warning where it is older than torch", "build it again", "", 3),
		entry("host.foundry-ops", bad, "Foundry's extension is a library, where graphs are used", "build it again", starts),
		entry("host.library-order", bad, "the environment's C++ library is found before the system's", "correct LD_LIBRARY_PATH", "", 44),
		entry("host.compat", bad, "a compatibility library is of torch's CUDA and is found first", "use the one of torch's CUDA", "", 48),
		entry("host.hook", bad, "the hook's path is absolute and leads to a library beside Foundry's extension, where graphs are used", "set AEGAEON_FOUNDRY_HOOK_PATH", "", 45),
		entry("host.boost", bad, "the Boost libraries that Foundry needs are found, where graphs are used", "install Boost 1.83 or later", "", 46),
		entry("host.driver-symbol", bad, "the driver's library that would be loaded defines cuFuncGetName, where graphs are used", "use a compatibility library", "", 47),
		entry("host.npus", open, "NPUs are known", Record, starts),
		entry("host.elsewhere", schemas.SeverityDeferred, "what facts do not tell of another host is checked when the experiment runs there", "", recorded),
		entry("host.model", bad, "the folder of a model was looked at there, and holds weights", "record the facts with --machine; fetch the model", recorded, 30),
	}
}
