package serving

import "fmt"

// PublishedSource says where the latencies of Published come from.
const PublishedSource = "fitted to the latency profiles of the public SOSP'25 artifact of Aegaeon (Apache-2.0), points with index 0 mod 3 held out"

// published holds coefficients by device and base model.
var published = map[string]map[string]Fit{
	"h100": {
		"qwen2.5-7b": {
			Prefill:   Coefficients{0.01610531923822951, 0.000014624425458865913, -6.63720016250673e-10},
			Decode:    Coefficients{0.008582226323935276, 2.5893959635877497e-7, 0.0000761476507023173},
			TrainedOn: 59, HeldOut: 30, PrefillR2: ratio(0.7127733673898822), DecodeR2: ratio(0.7643767355803044),
		},
		"yi-9b": {
			Prefill:   Coefficients{0.008493644362887045, 0.000026851966720032544, -6.151448745161434e-10},
			Decode:    Coefficients{0.013811617164993063, -2.9321864328413247e-7, 0.0000812420039086624},
			TrainedOn: 44, HeldOut: 23, PrefillR2: ratio(0.9544178858995361), DecodeR2: ratio(0.9599960929414391),
		},
		"llama2-13b": {
			Prefill:   Coefficients{0.007455501538639553, 0.00004119805690010415, -1.1858108286923975e-9},
			Decode:    Coefficients{0.012492969300955281, 1.2539260413886254e-7, 0.00011505571874337611},
			TrainedOn: 44, HeldOut: 23, PrefillR2: ratio(0.9921074997458916), DecodeR2: ratio(0.9681954202376944),
		},
	},
}

func ratio(v float64) *float64 { return &v }

// Published returns latencies of base models on a device that need no profiles at
// hand; PublishedSource says where they are from.
func Published(device string, models []BaseModel) (map[string]Fit, error) {
	known, ok := published[device]
	if !ok {
		return nil, fmt.Errorf("there are no built-in latencies for device %q, only for h100: give a folder of profiles", device)
	}
	out := map[string]Fit{}
	for _, m := range models {
		if out[m.Name], ok = known[m.Name]; !ok {
			return nil, fmt.Errorf("there are no built-in latencies of %s on %s: give a folder of profiles", m.Name, device)
		}
	}
	return out, nil
}

// Latencies are the fits of a workload's base models: from DIR/MODEL/DEVICE, or
// the built-in ones when dir is empty. The source is for people.
func Latencies(dir, device string, models []BaseModel) (fits map[string]Fit, source string, err error) {
	if dir == "" {
		fits, err = Published(device, models)
		return fits, PublishedSource, err
	}
	fits, err = FitModels(dir, device, models)
	return fits, "fitted to the profiles given", err
}

// DefaultPrefillWorkers is how many of the workers prefill where nothing is said:
// the published split, 6 of 16.
func DefaultPrefillWorkers(workers int) int { return max(1, workers*6/16) }
