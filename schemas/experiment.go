package schemas

import (
	"encoding/json"
	"fmt"
)

// Schema names of the documents.
const (
	ExperimentV1    = "assay/experiment/v1"
	MachineV1       = "assay/machine/v1"
	PlanV1          = "assay/plan/v1"
	KeyV1           = "assay/key/v1"
	StageRecordV1   = "assay/stage-record/v1"
	RequestRecordV1 = "assay/request-record/v1"
	ScheduleV1      = "assay/schedule/v1"
	FindingsV1      = "assay/findings/v1"
	TreeV1          = "assay/tree/v1"
	RunV1           = "assay/run/v1"
	ReportV1        = "assay/report/v1"
	ProbeV1         = "assay/probe/v1"
	LoadV1          = "assay/load/v1"
	CompareV1       = "assay/compare/v1"
	GraphsV1        = "assay/graphs/v1"
	ValidatedV1     = "assay/validated/v1"
	ResultV1        = "assay/result/v1"
)

// Experiment is the effective experiment: what the file says with --set applied.
// Its JSON has the shape of the TOML file, so an archived one loads again.
// Strings in Config may still hold ${...}.
type Experiment struct {
	Schema      string              `json:"schema"`
	Name        string              `json:"name"`
	Title       string              `json:"title,omitempty"`
	Description string              `json:"description,omitempty"`
	License     string              `json:"license,omitempty"`
	Params      map[string]any      `json:"params,omitempty"` // scalar, or {"path": "..."} as written
	Matrix      map[string][]any    `json:"matrix,omitempty"`
	Trials      Trials              `json:"trials"`
	Model       map[string]Model    `json:"model,omitempty"`
	Service     map[string]Service  `json:"service,omitempty"`
	Stage       map[string]StageDef `json:"stage"`
	Claim       []Claim             `json:"claim,omitempty"`
}

// Trials says how often and in which order matrix points run.
type Trials struct {
	Repeat int    `json:"repeat"`
	Order  string `json:"order"` // sequential, interleaved, abba, random
	Seed   uint64 `json:"seed"`
}

// Trial orders.
const (
	OrderSequential  = "sequential"
	OrderInterleaved = "interleaved"
	OrderABBA        = "abba"
	OrderRandom      = "random"
)

// Model is a model under test. Its identity is the checkpoint's fingerprint.
type Model struct {
	Name       string `json:"name"`
	Checkpoint string `json:"checkpoint,omitempty"`
	// Fingerprint is the one that the checkpoint has to have, "" for any.
	Fingerprint      Digest `json:"fingerprint,omitempty"`
	FingerprintLevel string `json:"fingerprint_level,omitempty"`
}

// Levels of fingerprints: headers of files alone, or all weights.
const (
	FingerprintHeader = "header"
	FingerprintFull   = "full"
)

// Level is how deep the model's fingerprint goes.
func (m Model) Level() string {
	if m.FingerprintLevel == "" {
		return FingerprintHeader
	}
	return m.FingerprintLevel
}

// Service is a long-lived serving process.
type Service struct {
	Engine  string   `json:"engine"`  // emulated, openai, aegaeon, pypto
	Restart string   `json:"restart"` // trial, change, run
	Devices []string `json:"devices,omitempty"`
	Needs   []string `json:"needs,omitempty"`
	// Config holds every other key of the table, by the engine's fields.
	Config map[string]any `json:"-"`
}

// StageDef is one node of the DAG as written.
type StageDef struct {
	Kind    string   `json:"kind"`
	Needs   []string `json:"needs,omitempty"`
	Service string   `json:"service,omitempty"`
	Scope   string   `json:"scope"` // run or trial
	Timeout Duration `json:"timeout,omitempty"`
	// Config holds every other key of the table, by the kind's fields.
	Config map[string]any `json:"-"`
}

// Stage scopes.
const (
	ScopeRun   = "run"
	ScopeTrial = "trial"
)

// Claim is what a reproduction must show.
type Claim struct {
	Name      string  `json:"name"`
	Metric    string  `json:"metric"` // stage.metric.statistic
	Expect    float64 `json:"expect"`
	Tolerance float64 `json:"tolerance"`
	Gate      bool    `json:"gate"`
	Source    string  `json:"source,omitempty"`
}

// MarshalJSON puts Config beside the common keys, as in the file.
func (s StageDef) MarshalJSON() ([]byte, error) {
	type plain StageDef
	return mergeConfig(plain(s), s.Config)
}

// UnmarshalJSON splits what MarshalJSON merged.
func (s *StageDef) UnmarshalJSON(b []byte) error {
	type plain StageDef
	cfg, err := splitConfig(b, (*plain)(s), "kind", "needs", "service", "scope", "timeout")
	s.Config = cfg
	return err
}

// MarshalJSON puts Config beside the common keys, as in the file.
func (s Service) MarshalJSON() ([]byte, error) {
	type plain Service
	return mergeConfig(plain(s), s.Config)
}

// UnmarshalJSON splits what MarshalJSON merged.
func (s *Service) UnmarshalJSON(b []byte) error {
	type plain Service
	cfg, err := splitConfig(b, (*plain)(s), "engine", "restart", "devices", "needs")
	s.Config = cfg
	return err
}

func mergeConfig(common any, config map[string]any) ([]byte, error) {
	v, err := Normalize(common)
	if err != nil {
		return nil, err
	}
	m := v.(map[string]any)
	for k, x := range config {
		if _, taken := m[k]; taken {
			return nil, fmt.Errorf("key %q is both a common key and one of the kind's own", k)
		}
		m[k] = x
	}
	return json.Marshal(m)
}

func splitConfig(b []byte, common any, names ...string) (map[string]any, error) {
	if err := json.Unmarshal(b, common); err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, err
	}
	for _, n := range names {
		delete(m, n)
	}
	return m, nil
}
