package emulated

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"assay/schemas"
)

// Engine is the name of this engine in experiments.
const Engine = "emulated"

// Name is how every answer says where it comes from: the Server header and the
// owner of every model.
const Name = "assay-emulated"

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 4 << 20

// Config is what the engine serves and how fast. Its JSON form is a service's
// keys of engine "emulated" in an experiment.
type Config struct {
	Models         []Model `json:"models"`
	TimeScale      float64 `json:"time_scale"`
	Seed           uint64  `json:"seed"`
	TokensPerChunk int     `json:"tokens_per_chunk"`
	Fault          *Fault  `json:"fault,omitempty"`
	// Personality is whose API it has, "" for PersonalityOpenAI.
	Personality string `json:"personality,omitempty"`
	// Serving describes the system that requests contend for; nil: they do not.
	Serving   schemas.Settings `json:"serving,omitempty"`
	CUDAGraph *CUDAGraph       `json:"cuda_graph,omitempty"`
	Profile   *Profile         `json:"profile,omitempty"`
	Limits    *Limits          `json:"limits,omitempty"`
	// LoadTime passes before it listens, divided by TimeScale.
	LoadTime schemas.Duration `json:"load_time,omitempty"`
}

// The personalities.
const (
	PersonalityOpenAI  = "openai"
	PersonalityAegaeon = "aegaeon"
	PersonalityPyPTO   = "pypto"
	PersonalityVLLM    = "vllm"
)

// Model is one model and its latencies before TimeScale.
type Model struct {
	Name string `json:"name"`
	// Count over 1 stands for that many models, the name followed by a number;
	// FromMap has expanded it.
	Count           int              `json:"count,omitempty"`
	PrefillBase     schemas.Duration `json:"prefill_base"`
	PrefillPerToken schemas.Duration `json:"prefill_per_token"`
	DecodePerToken  schemas.Duration `json:"decode_per_token"`
	Jitter          float64          `json:"jitter"`
	MaxModelLen     int              `json:"max_model_len"`
	// Base is the base model and Undeployed says that no node has it at first; both
	// are of use with Config.Serving alone.
	Base       string `json:"base,omitempty"`
	Undeployed bool   `json:"undeployed,omitempty"`
}

// CUDAGraph says what becomes of the graphs of decode steps.
type CUDAGraph struct {
	Mode             string  `json:"mode"`
	ArchiveDir       string  `json:"archive_dir,omitempty"`
	BatchSizes       []int   `json:"batch_sizes,omitempty"`
	SeqLenBucket     int     `json:"seq_len_bucket"`
	BaseAddress      uint64  `json:"base_address"`
	RegionSizeBytes  uint64  `json:"region_size_bytes"`
	ScratchSizeBytes uint64  `json:"scratch_size_bytes"`
	DecodeFactor     float64 `json:"decode_factor"`
}

// Limits are rates of each model over a minute, 0 for none.
type Limits struct {
	RequestsPerSecond float64 `json:"max_requests_per_second"`
	TokensPerSecond   float64 `json:"max_tokens_per_second"`
}

// Profile says where traces go.
type Profile struct {
	Output string `json:"output"`
	Level  string `json:"level"`
}

// Fault is misbehaviour on purpose.
type Fault struct {
	Kind          string           `json:"kind"`
	AfterRequests int              `json:"after_requests"`
	AfterTokens   int              `json:"after_tokens"`
	Delay         schemas.Duration `json:"delay"`
}

// ParseConfig reads a configuration and fills in defaults. Keys, types, limits
// and defaults are those that schemas.Engines describes; anything else is an
// error that names the key.
func ParseConfig(b []byte) (Config, error) {
	raw, err := ParseKeys(b)
	if err != nil {
		return Config{}, err
	}
	return FromMap(raw)
}

// ParseKeys reads a configuration's JSON object and looks at nothing in it.
func ParseKeys(b []byte) (map[string]any, error) {
	if len(b) > maxConfigBytes {
		return nil, fmt.Errorf("emulated config: %d bytes, more than %d", len(b), maxConfigBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	raw := map[string]any{}
	if err := dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("emulated config: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("emulated config: something follows the JSON object")
	}
	if raw == nil { // null
		raw = map[string]any{}
	}
	return raw, nil
}

// FromMap is ParseConfig for a configuration that is parsed already. Keys that
// concern the process and not its answers (port, ready_timeout, stop_grace) are
// accepted and left to whoever starts it.
func FromMap(raw map[string]any) (Config, error) {
	plain, err := schemas.Normalize(raw)
	if err != nil {
		return Config{}, fmt.Errorf("emulated config: %w", err)
	}
	table, _ := plain.(map[string]any)
	if table["models"] == nil {
		return Config{}, errors.New("emulated config: models: is missing")
	}
	if table["personality"] == PersonalityAegaeon && table["serving"] == nil { // it is a system of workers, whatever it serves
		table["serving"] = map[string]any{"policy": "aegaeon", "workers": 2.0, "prefill_workers": 1.0}
	}
	filled, err := fill(table, fields(), "")
	if err != nil {
		return Config{}, fmt.Errorf("emulated config: %w", err)
	}
	b, err := json.Marshal(filled)
	if err != nil {
		return Config{}, fmt.Errorf("emulated config: %w", err)
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("emulated config: %w", err)
	}
	c.Models = expand(c.Models)
	return c, c.check()
}

// expand replaces a model with a count by that many, numbered from 0 with as
// many digits as the last one needs, two at least.
func expand(models []Model) []Model {
	var out []Model
	for _, m := range models {
		count, prefix := m.Count, m.Name
		m.Count = 0
		if count <= 1 {
			out = append(out, m)
			continue
		}
		width := max(2, len(strconv.Itoa(count-1)))
		for i := range count {
			m.Name = fmt.Sprintf("%s%0*d", prefix, width, i)
			out = append(out, m)
		}
	}
	return out
}

// check is what the field descriptions cannot say.
func (c Config) check() error {
	if len(c.Models) == 0 {
		return errors.New("emulated config: models: name at least one")
	}
	seen := map[string]bool{}
	for i, m := range c.Models {
		switch {
		case m.Name == "" || strings.ContainsAny(m.Name, "\r\n\x00"):
			return fmt.Errorf("emulated config: models[%d].name: %q is no name", i, m.Name)
		case seen[m.Name]:
			return fmt.Errorf("emulated config: models[%d].name: %q is there twice", i, m.Name)
		}
		seen[m.Name] = true
	}
	if err := c.checkSystem(); err != nil {
		return fmt.Errorf("emulated config: %w", err)
	}
	return nil
}

func fields() []schemas.Field {
	for _, e := range schemas.Engines() {
		if e.Name == Engine {
			return e.Fields
		}
	}
	return nil
}

// fill checks table against its fields and returns it with defaults filled in.
func fill(table map[string]any, fields []schemas.Field, at string) (map[string]any, error) {
	out := map[string]any{}
	known := make([]string, 0, len(fields))
	for _, f := range fields {
		known = append(known, f.Name)
		v, ok := table[f.Name]
		if !ok || v == nil {
			if f.Required {
				return nil, fmt.Errorf("%s%s: is missing", at, f.Name)
			}
			if f.Default != nil {
				out[f.Name] = f.Default
			}
			continue
		}
		filled, err := fillValue(v, f, at+f.Name)
		if err != nil {
			return nil, err
		}
		out[f.Name] = filled
	}
	names := make([]string, 0, len(table))
	for name := range table {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%s%s: unknown key; there are: %s", at, name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

func fillValue(v any, f schemas.Field, at string) (any, error) {
	switch f.Type {
	case schemas.TypeTable:
		t, ok := v.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s: want a table", at)
		}
		return fill(t, f.Fields, at+".")
	case schemas.TypeTableList:
		return fillList(v, f, at)
	case schemas.TypeInt, schemas.TypeFloat, schemas.TypePort:
		return number(v, f, at)
	case schemas.TypeDuration:
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%s: want a duration with its unit, like \"20ms\"", at)
		}
		if _, err := schemas.ParseDuration(s); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		return s, nil
	case schemas.TypeBool, schemas.TypeScalarList:
		if err := schemas.CheckValue(f, v); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		return v, nil
	}
	s, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("%s: want a string", at)
	}
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, s) {
		return nil, fmt.Errorf("%s: %q is none of %s", at, s, strings.Join(f.Enum, ", "))
	}
	return s, nil
}

func fillList(v any, f schemas.Field, at string) (any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: want a list of tables", at)
	}
	out := make([]any, len(list))
	for i, e := range list {
		t, ok := e.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s[%d]: want a table", at, i)
		}
		filled, err := fill(t, f.Fields, fmt.Sprintf("%s[%d].", at, i))
		if err != nil {
			return nil, err
		}
		out[i] = filled
	}
	return out, nil
}

func number(v any, f schemas.Field, at string) (any, error) {
	n, ok := v.(float64)
	if !ok || math.IsNaN(n) || math.IsInf(n, 0) {
		return nil, fmt.Errorf("%s: want a number", at)
	}
	if f.Type != schemas.TypeFloat && (n != math.Trunc(n) || math.Abs(n) > 1<<53) {
		return nil, fmt.Errorf("%s: want a whole number", at)
	}
	if f.Min != nil && n < *f.Min || f.Max != nil && n > *f.Max {
		return nil, fmt.Errorf("%s: %s is out of range", at, schemas.Decimal(n))
	}
	if f.Type != schemas.TypeFloat {
		return int64(n), nil
	}
	return n, nil
}
