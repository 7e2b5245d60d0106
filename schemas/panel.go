package schemas

// Panel is the chart of a sweep: what it draws, and what was read off it.
type Panel struct {
	Title  string        `json:"title"`
	X      string        `json:"x"`      // the axis that was swept
	Y      string        `json:"y"`      // what stands above it
	Target float64       `json:"target"` // the line that loads are read at
	Series []PanelSeries `json:"series"`
}

// PanelSeries is one line of a panel.
type PanelSeries struct {
	Name   string       `json:"name"`
	Points []PanelPoint `json:"points"` // in order of x
	// Load is the x at which the line falls below the target, by interpolation
	// between points; absent when it does not within the sweep.
	Load *float64 `json:"load,omitempty"`
	Note string   `json:"note,omitempty"` // why there is no load
}

// PanelPoint is one simulated point.
type PanelPoint struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
	// Requests were issued, of which so many finished.
	Requests int `json:"requests"`
	Finished int `json:"finished"`
}

func sweepKind() KindSpec {
	fields := []Field{
		{Name: "x", Type: TypeString, Default: "models", Enum: SweepAxes, Doc: "which of the lists is the chart's axis; each combination of the others with a policy is a line"},
		{Name: "policies", Type: TypeStringList, Required: true, Doc: "policies, each of serverlessllm, serverlessllm-plus, aegaeon"},
		{Name: "models", Type: TypeScalarList, Required: true, Doc: "numbers of models"},
		{Name: "rates", Type: TypeScalarList, Required: true, Doc: "requests per second and model"},
		{Name: "input_scales", Type: TypeScalarList, Doc: "factors of prompt lengths; default 1"},
		{Name: "output_scales", Type: TypeScalarList, Doc: "factors of output lengths; default 1"},
		{Name: "slo_scales", Type: TypeScalarList, Doc: "factors of both targets; default 1"},
		{Name: "workers", Type: TypeScalarList, Doc: "numbers of devices; default 16"},
		{Name: "devices", Type: TypeStringList, Doc: "accelerators; default h100"},
		{Name: "duration", Type: TypeDuration, Required: true, Doc: "span of arrivals"},
		{Name: "title", Type: TypeString, Doc: "heading of the chart"},
		{Name: "target", Type: TypeFloat, Default: 0.9, Min: bound(1e-6), Max: bound(1), Doc: "mean QoS at which the sustained load is read"},
		{Name: "per_repetition", Type: TypeBool, Default: true, Doc: "false: all repetitions share one seed, and so one workload"},
	}
	fields = append(fields, lengthFields()...)
	for _, f := range simulateKind().Fields {
		switch f.Name {
		case "workload", "models", "policy", "device", "workers", "prefill_workers":
		default:
			if !isReadField(f.Name) {
				fields = append(fields, f)
			}
		}
	}
	return KindSpec{Name: "sweep", Scope: ScopeTrial, Doc: "simulates a grid of generated workloads, draws mean QoS over one axis and reads the sustained load", Outputs: []string{"points", "chart", "result"}, Fields: fields}
}

// SweepAxes are what a sweep can draw mean QoS over.
var SweepAxes = []string{"models", "rate", "input_scale", "output_scale", "slo_scale", "workers"}

// lengthFields describe the lengths of generated workloads.
func lengthFields() []Field {
	return []Field{
		{Name: "input_mean", Type: TypeInt, Default: 256.0, Min: bound(1), Max: bound(1e6), Doc: "mean prompt length, tokens"},
		{Name: "output_mean", Type: TypeInt, Default: 128.0, Min: bound(1), Max: bound(1e6), Doc: "mean output length, tokens"},
		{Name: "input_quantiles", Type: TypeScalarList, Doc: "prompt lengths at evenly spaced shares from 0 to 1, in place of input_mean; between them lengths are interpolated"},
		{Name: "output_quantiles", Type: TypeScalarList, Doc: "the same for outputs"},
		{Name: "arrivals", Type: TypeString, Default: "poisson", Enum: []string{"poisson", "fixed-count"}, Doc: "poisson: at the stated rate; fixed-count: as the published generator, which draws duration x rate gaps for each model and cuts what is late, and so falls short of the rate"},
		{Name: "max_tokens", Type: TypeInt, Default: 4096.0, Min: bound(2), Max: bound(1e7), Doc: "limit of prompt and output together"},
	}
}
