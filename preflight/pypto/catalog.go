package pypto

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	const starts, comparable = "the engine starts as it was meant", "a measurement is of one known state"
	entry := func(id string, s schemas.Severity, rule, checks, remedy string) preflight.Entry {
		return preflight.Entry{ID: id, Subject: "configuration", Severity: s, Checks: checks, Remedy: remedy, When: preflight.Before, Rule: rule}
	}
	return []preflight.Entry{
		entry("pypto.command", schemas.SeverityPass, starts, "everything below holds, as far as it refuses", ""),
		entry("pypto.option", schemas.SeverityError, starts, "options are ones that the program has, with values of their kind; unknown where versions may differ", "compare with the program's --help"),
		entry("pypto.model", schemas.SeverityError, starts, "a model is named", "give --model"),
		entry("pypto.offline", schemas.SeverityError, starts, "the command starts a service, not one generation", "remove --prompt"),
		entry("pypto.config", schemas.SeverityError, starts, "options that take JSON have the keys and values that the engine takes", "correct the object"),
		entry("pypto.sampling", schemas.SeverityWarning, comparable, "answers are the same in every run", "set temperature to 0, or a seed"),
		entry("pypto.speculative", schemas.SeverityError, starts, "speculative decoding is of a known method, with its number of tokens, for a model that has it", "correct --speculative-config"),
		entry("pypto.architecture", schemas.SeverityError, starts, "the checkpoint is of a family that the engine serves, in its form", "use another checkpoint, or convert it"),
		entry("pypto.context", schemas.SeverityError, starts, "the longest sequence is no longer than the checkpoint allows", "lower --max-model-len"),
		entry("pypto.topology", schemas.SeverityError, starts, "parallel sizes, block size and devices are those that the model's family wants", "give the sizes that it wants"),
		entry("pypto.devices", schemas.SeverityError, starts, "devices are listed once, and the host has them", "list devices that the host has"),
		entry("pypto.profile", schemas.SeverityError, starts, "options of profiling stand beside --profile and have known levels; a warning where it is on", "measure without --profile"),
		entry("pypto.compile-cache", schemas.SeverityUnknown, comparable, "compiled programs are kept, complete and current; a warning where they are not, unknown where they cannot be read", "set the variables of one scheme, and remove what is not whole"),
		entry("pypto.max-model-len", schemas.SeverityError, starts, "requests are no longer than the service allows", "raise --max-model-len"),
		entry("pypto.max-num-seqs", schemas.SeverityWarning, comparable, "as many requests run as are sent at once", "raise --max-num-seqs, or count the wait"),
		entry("pypto.prefix-cache", schemas.SeverityInfo, comparable, "says that prefix caching is on", "pass --no-enable-prefix-caching where prompts repeat"),
	}
}
