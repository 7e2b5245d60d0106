package emulated

import (
	"fmt"
	"strings"
)

// levels of a profile: each adds spans.
type levels struct{ e2e, kernel, verbose bool }

// parseLevels reads a comma list, whatever its case; verbose implies the others.
func parseLevels(text string) (levels, error) {
	var l levels
	for _, name := range strings.Split(text, ",") {
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "e2e":
			l.e2e = true
		case "kernel":
			l.kernel = true
		case "verbose":
			l = levels{true, true, true}
		default:
			return l, fmt.Errorf("unknown profile level %q: supported are e2e, kernel, verbose", name)
		}
	}
	return l, nil
}
