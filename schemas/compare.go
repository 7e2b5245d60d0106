package schemas

// How the difference of a metric is stated.
const (
	DifferencePercent = "percent" // of the baseline
	DifferencePoints  = "points"  // of shares in [0, 1], times 100
)

// What a comparison compares, where it is no parameter.
const (
	CompareStages = "stage"
	CompareRuns   = "run"
)

// Comparison is what came of comparing pairs of trials. A pair is one repetition at
// one point of the matrix, under a baseline and under a candidate.
type Comparison struct {
	Schema string `json:"schema" jsonschema_extras:"const=assay/compare/v1"`
	// By is the parameter that differs, or stage, or run.
	By string `json:"by"`
	// Runs are the runs that were compared, baseline first; none within a run.
	Runs      []ComparisonRun `json:"runs,omitempty"`
	Emulated  bool            `json:"emulated"`
	Simulated bool            `json:"simulated"`
	// Comparable says that every pair is valid; else Refusals say why not, and no
	// difference is stated.
	Comparable bool      `json:"comparable"`
	Refusals   []Finding `json:"refusals"`
	// Unknown names conditions that neither side of a pair knows.
	Unknown []string `json:"unknown_conditions"`
	// Doubts are reasons to believe the numbers less, such as a client that did not keep
	// up.
	Doubts []string `json:"doubts"`
	// Confidence of the t intervals of mean differences over pairs; Method in words.
	Confidence float64           `json:"confidence"`
	Method     string            `json:"method"`
	Groups     []ComparisonGroup `json:"groups"`
	// Gate says that a difference outside of its tolerance is a failure; Within that
	// none is, absent where no tolerance was asked for.
	Gate   bool  `json:"gate"`
	Within *bool `json:"within,omitempty"`
}

// ComparisonRun is a run that was compared.
type ComparisonRun struct {
	Reference string `json:"reference"`
	Digest    Digest `json:"digest" jsonschema:"pattern=^sha256:[0-9a-f]{64}$"`
}

// ComparisonGroup is one baseline and one candidate at one point of everything else.
type ComparisonGroup struct {
	// Label tells groups of one comparison apart; empty for the only one.
	Label     string             `json:"label"`
	Stage     string             `json:"stage"`
	Baseline  string             `json:"baseline"` // value, stage or run
	Candidate string             `json:"candidate"`
	Point     map[string]any     `json:"point,omitempty"`
	Pairs     []ComparisonPair   `json:"pairs"`
	Metrics   []ComparisonMetric `json:"metrics"`
}

// ComparisonPair names the two trials of a pair.
type ComparisonPair struct {
	Repetition int    `json:"repetition"`
	Baseline   string `json:"baseline"` // node, of the baseline's run
	Candidate  string `json:"candidate"`
	Requests   int    `json:"requests"`
	// SameOutput counts requests whose generated text is the same, of those of which
	// both are known.
	SameOutput  int `json:"same_output"`
	KnownOutput int `json:"known_output"`
}

// ComparisonMetric is one metric over the pairs of a group.
type ComparisonMetric struct {
	Metric string `json:"metric"`
	Unit   string `json:"unit"`
	As     string `json:"as" jsonschema:"enum=percent,enum=points"`
	// Better says which direction is better; absent where neither is.
	Better        string          `json:"better,omitempty" jsonschema:"enum=lower,enum=higher"`
	Rows          []ComparisonRow `json:"rows"`
	N             int             `json:"n"` // pairs with a difference
	BaselineMean  *float64        `json:"baseline_mean,omitempty"`
	CandidateMean *float64        `json:"candidate_mean,omitempty"`
	Mean          *float64        `json:"mean,omitempty"` // of the differences, with its interval
	Low           *float64        `json:"low,omitempty"`
	High          *float64        `json:"high,omitempty"`
	Note          string          `json:"note,omitempty"` // why there is no mean, or no interval
	// Few says that a percentile has fewer samples than it needs, in some trial.
	Few       bool     `json:"few,omitempty"`
	Tolerance *float64 `json:"tolerance,omitempty"`
	Within    *bool    `json:"within,omitempty"`
}

// ComparisonRow is one pair. Difference is candidate minus baseline.
type ComparisonRow struct {
	Repetition int      `json:"repetition"`
	Baseline   *float64 `json:"baseline,omitempty"`
	Candidate  *float64 `json:"candidate,omitempty"`
	Difference *float64 `json:"difference,omitempty"`
	Unknown    string   `json:"unknown,omitempty"`
}

func compareKind() KindSpec {
	return KindSpec{Name: "compare", Scope: ScopeRun, Doc: "compares measure or simulate results pair by pair, after checking that the pairs are alike", Outputs: []string{"comparison", "result"}, Fields: []Field{
		{Name: "by", Type: TypeString, Doc: "parameter of the matrix whose values are compared, or stage: two of the stages in needs; default: stage where baseline names one"},
		{Name: "baseline", Type: TypeScalar, Doc: "value, or stage, that the others are compared with; default: the first of the matrix, or of needs"},
		{Name: "candidate", Type: TypeScalar, Doc: "value, or stage, that is compared; default: every other"},
		{Name: "metrics", Type: TypeStringList, Doc: "names as in claims without the stage, like ttft_ms.p95; switch[*].ttft_ms.mean is every ordered pair; default: latencies, throughput, attainment and QoS, or the switches"},
		{Name: "tolerance", Type: TypeFloat, Min: bound(0), Max: bound(1e6), Doc: "largest mean difference, in per cent or points, of every metric"},
		{Name: "limits", Type: TypeTableList, Doc: "tolerances of single metrics", Fields: []Field{
			{Name: "metric", Type: TypeString, Required: true, Doc: "one of metrics"},
			{Name: "tolerance", Type: TypeFloat, Required: true, Min: bound(0), Max: bound(1e6), Doc: "largest mean difference, in per cent or points"},
		}},
		{Name: "only_worse", Type: TypeBool, Default: false, Doc: "tolerances bound changes for the worse alone, where a metric has a better direction"},
		{Name: "gate", Type: TypeBool, Default: true, Doc: "false: a difference outside of its tolerance is reported, but never fails the run"},
		{Name: "same_output", Type: TypeBool, Default: false, Doc: "refuse pairs whose generated texts differ"},
		{Name: "differ", Type: TypeStringList, Doc: "names of conditions that may differ, beside the parameter compared by; engines for the set of engines"},
	}}
}
