package aegaeon

import (
	"slices"
	"strings"

	"assay/schemas"
)

// Command checks what the engine is started with: options that the configuration wins
// over, and variables that switch it to something else.
func Command(subject string, argv []string, env map[string]string) []schemas.Finding {
	c := &checker{subject: subject}
	overridden := []string{"--num-engines", "--num-prefill-engines", "--num-decode-engines", "--cpu-num-slabs", "--cpu-slab-size-gb", "--model-cache-size-gb"}
	for i, arg := range argv {
		name, value, given := strings.Cut(arg, "=")
		if !given && i+1 < len(argv) {
			value = argv[i+1]
		}
		switch {
		case slices.Contains(overridden, name):
			c.warn("aegaeon.command-option", "remove it, and set the key in the configuration", "option %s has no effect: the configuration wins", name)
		case name == "--tensor-parallel-size" && value != "1":
			c.fail("aegaeon.tensor-parallel", "set it to 1", "option %s %s: only 1 is supported", name, value)
		}
	}
	if v := env["AEGAEON_DUMMY_WEIGHTS"]; v != "" && v != "0" && !strings.EqualFold(v, "false") {
		c.fail("aegaeon.dummy-weights", "unset it", "AEGAEON_DUMMY_WEIGHTS is set: with placeholder weights neither tokens nor times mean anything")
	}
	for _, name := range []string{"AEGAEON_MAX_REQUESTS_PER_SECOND", "AEGAEON_MAX_TOKENS_PER_SECOND"} {
		if env[name] != "" {
			c.fail("aegaeon.limits", "unset it", "%s is set: requests beyond it are refused in the middle of a run", name)
		}
	}
	if a, b := env["CUDA_VISIBLE_DEVICES"], env["AEGAEON_CUDA_VISIBLE_DEVICES"]; a != "" && b != "" && a != b {
		c.fail("aegaeon.visible-devices", "set both to the same list, or one of them", "CUDA_VISIBLE_DEVICES and AEGAEON_CUDA_VISIBLE_DEVICES differ")
	}
	if len(c.findings) == 0 {
		c.add("aegaeon.command-option", schemas.SeverityPass, "", "no option and no variable is at odds with the configuration")
	}
	return c.findings
}
