package report

// Names of the values of a comparison's result, each followed by a metric's name, as
// difference.ttft_ms.p50, or, where there are several groups, by a group's label in
// brackets before it, as difference[replay,round-robin].ttft_ms.p50.
const (
	Difference     = "difference"      // mean over pairs, per cent or points
	DifferenceLow  = "difference_low"  // lower end of its interval
	DifferenceHigh = "difference_high" // upper end
)

func differencePrefixes() []string {
	var out []string
	for _, p := range []string{Difference, DifferenceLow, DifferenceHigh} {
		out = append(out, p+".", p+"[")
	}
	return out
}
