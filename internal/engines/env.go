package engines

import (
	"os"
	"sort"
	"strconv"
	"strings"
)

// PortEnv is the variable that tells a started service its port.
const PortEnv = "ASSAY_PORT"

// allowed variables of this process reach a service; names that end in '*' are
// prefixes. Everything else has to be configured, so that it is on record.
var allowed = []string{
	"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "TMPDIR", "LD_LIBRARY_PATH",
	"CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_*",
}

func isAllowed(name string) bool {
	for _, a := range allowed {
		if prefix, ok := strings.CutSuffix(a, "*"); name == a || ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// environment is what a service sees: each name once, sorted.
func environment(config map[string]string, extra []string, port int) []string {
	vars := map[string]string{}
	for _, kv := range os.Environ() {
		if name, value, ok := strings.Cut(kv, "="); ok && isAllowed(name) {
			vars[name] = value
		}
	}
	for name, value := range config {
		vars[name] = value
	}
	for _, kv := range extra {
		if name, value, ok := strings.Cut(kv, "="); ok {
			vars[name] = value
		}
	}
	vars[PortEnv] = strconv.Itoa(port)
	out := make([]string, 0, len(vars))
	for name, value := range vars {
		out = append(out, name+"="+value)
	}
	sort.Strings(out)
	return out
}
