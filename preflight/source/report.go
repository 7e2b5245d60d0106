package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"assay/schemas"
)

// ReportFile is the report's name in the folder.
const ReportFile = "report.json"

const (
	maxReportBytes = 64 << 20
	maxFiles       = 200_000
	maxDepth       = 64
)

// problem is one thing that is wrong with a document.
type problem struct {
	id, path, text string
}

// reader takes values out of a document and notes what is wrong with them.
type reader struct {
	problems []problem
}

func (r *reader) wrong(path, format string, args ...any) {
	r.problems = append(r.problems, problem{id: "source.report-field", path: path, text: fmt.Sprintf(format, args...)})
}

// object is a table of the document; nil, with a problem, when it is none.
func (r *reader) object(v any, at string) map[string]any {
	m, ok := v.(map[string]any)
	if !ok {
		r.wrong(at, "want an object, have %s", sort(v))
	}
	return m
}

func (r *reader) list(m map[string]any, at, name string) []any {
	v, ok := r.value(m, at, name)
	if !ok {
		return nil
	}
	l, ok := v.([]any)
	if !ok {
		r.wrong(at+name, "want a list, have %s", sort(v))
	}
	return l
}

func (r *reader) value(m map[string]any, at, name string) (any, bool) {
	v, ok := m[name]
	if !ok || v == nil {
		if m != nil {
			r.wrong(at+name, "is missing")
		}
		return nil, false
	}
	return v, true
}

func (r *reader) text(m map[string]any, at, name string) string {
	v, ok := r.value(m, at, name)
	if !ok {
		return ""
	}
	s, ok := v.(string)
	switch {
	case !ok:
		r.wrong(at+name, "want a text, have %s", sort(v))
	case strings.TrimSpace(s) == "":
		r.wrong(at+name, "is empty")
	}
	return s
}

func (r *reader) flag(m map[string]any, at, name string) bool {
	v, ok := r.value(m, at, name)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		r.wrong(at+name, "want true or false, have %s", sort(v))
	}
	return b
}

// whole is a whole number, also as a hexadecimal text, as configurations have it.
func (r *reader) whole(m map[string]any, at, name string) int64 {
	v, ok := r.value(m, at, name)
	if !ok {
		return 0
	}
	n, ok := wholeOf(v)
	if !ok {
		r.wrong(at+name, "want a whole number, have %s", sort(v))
	}
	if n < 0 {
		r.wrong(at+name, "is negative")
	}
	return n
}

func wholeOf(v any) (int64, bool) {
	text := ""
	switch x := v.(type) {
	case json.Number:
		text = x.String()
	case string:
		text = strings.ReplaceAll(x, "_", "")
	default:
		return 0, false
	}
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > schemas.MaxInteger {
		return 0, false
	}
	return int64(f), true
}

func (r *reader) number(m map[string]any, at, name string) float64 {
	v, ok := r.value(m, at, name)
	if !ok {
		return 0
	}
	n, ok := v.(json.Number)
	f, err := n.Float64()
	if !ok || err != nil {
		r.wrong(at+name, "want a number, have %s", sort(v))
	}
	return f
}

// sort names a value's type, for people.
func sort(v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(x)
	case json.Number:
		return "the number " + x.String()
	case string:
		return fmt.Sprintf("the text %.40q", x)
	case []any:
		return "a list"
	}
	return "an object"
}

// parse reads a report. What is wrong with its form comes as problems.
func parse(b []byte) (schemas.Validated, []problem) {
	doc, err := decode(b)
	if err != nil {
		return schemas.Validated{}, []problem{{id: "source.report-unreadable", text: err.Error()}}
	}
	r := &reader{}
	m := r.object(doc, "")
	if m == nil {
		return schemas.Validated{}, r.problems
	}
	var v schemas.Validated
	v.SchemaVersion = r.version(m)
	if v.SchemaVersion == schemas.ValidatedV1 {
		if err := schemas.Validate("validated", b); err != nil {
			var invalid *schemas.InvalidError
			if errors.As(err, &invalid) {
				for _, w := range invalid.Violations {
					r.wrong("", "%s", w)
				}
			} else {
				r.wrong("", "%v", err)
			}
			return v, r.problems
		}
	}
	v.Passed = r.flag(m, "", "passed")
	v.Emulated, _ = m["emulated"].(bool)
	if text := r.text(m, "", "created_at"); text != "" {
		if v.CreatedAt, err = time.Parse(time.RFC3339, text); err != nil {
			r.wrong("created_at", "%q is no time of the form 2026-01-31T12:00:00Z", text)
		}
	}
	v.ArchiveRoot = r.text(m, "", "archive_root")
	r.loadConfig(m, &v)
	v.Environment = r.environment(m, v.Emulated)
	v.Graph = r.graph(m)
	r.models(m, &v)
	r.switches(m, &v)
	r.checks(m, &v)
	r.files(m, &v)
	return v, r.problems
}

// version takes any form but a later one of our own.
func (r *reader) version(m map[string]any) string {
	v, ok := r.value(m, "", "schema_version")
	if !ok {
		return ""
	}
	text := ""
	switch x := v.(type) {
	case string:
		text = x
	case json.Number:
		text = x.String()
	}
	switch {
	case strings.TrimSpace(text) == "":
		r.wrong("schema_version", "want a text or a number, have %s", sort(v))
	case strings.HasPrefix(text, "assay/") && text != schemas.ValidatedV1:
		r.wrong("schema_version", "%q is not known here: this assay reads %s", text, schemas.ValidatedV1)
	}
	return text
}

// loadConfig is a path beside its hash, or an object with both.
func (r *reader) loadConfig(m map[string]any, v *schemas.Validated) {
	switch c := m["load_config"].(type) {
	case map[string]any:
		v.LoadConfig, v.LoadConfigSHA256 = r.text(c, "load_config.", "path"), r.text(c, "load_config.", "sha256")
	default:
		v.LoadConfig, v.LoadConfigSHA256 = r.text(m, "", "load_config"), r.text(m, "", "load_config_sha256")
	}
	v.LoadConfigSHA256 = r.sum(v.LoadConfigSHA256, "load_config_sha256")
}

// sum is a SHA-256 in lower-case hexadecimal.
func (r *reader) sum(s, at string) string {
	hex := strings.ToLower(strings.TrimPrefix(s, "sha256:"))
	if s != "" && !schemas.Digest("sha256:"+hex).Valid() {
		r.wrong(at, "%.80q is no SHA-256", s)
	}
	return hex
}

func (r *reader) environment(m map[string]any, isEmulated bool) (e schemas.ValidatedEnvironment) {
	v, ok := r.value(m, "", "environment")
	if !ok {
		return e
	}
	t := r.object(v, "environment")
	for name, into := range map[string]*string{"aegaeon_revision": &e.AegaeonRevision, "foundry_revision": &e.FoundryRevision, "torch": &e.Torch, "vllm": &e.VLLM, "cuda": &e.CUDA,
		"driver": &e.Driver, "gpu_name": &e.GPUName, "compute_capability": &e.ComputeCapability, "hook_sha256": &e.HookSHA256} {
		if n, ok := t[name].(json.Number); ok { // as 8.0 for a compute capability
			*into = n.String()
			continue
		}
		*into = r.text(t, "environment.", name)
	}
	e.GPUMemoryBytes = r.whole(t, "environment.", "gpu_memory_bytes")
	if t != nil && !isEmulated {
		if e.GPUMemoryBytes == 0 && t["gpu_memory_bytes"] != nil {
			r.wrong("environment.gpu_memory_bytes", "is 0")
		}
		if e.HookSHA256 != "" {
			e.HookSHA256 = r.sum(e.HookSHA256, "environment.hook_sha256")
		}
	}
	return e
}

func (r *reader) graph(m map[string]any) (g schemas.ValidatedGraph) {
	v, ok := r.value(m, "", "graph")
	if !ok {
		return g
	}
	t := r.object(v, "graph")
	const at = "graph."
	for _, x := range r.list(t, at, "batch_sizes") {
		n, ok := wholeOf(x)
		if !ok || n < 1 || n > 1<<20 {
			r.wrong("graph.batch_sizes", "want whole numbers of 1 or more, have %s", sort(x))
			break
		}
		g.BatchSizes = append(g.BatchSizes, int(n))
	}
	g.SeqLenBucket = int(r.whole(t, at, "seq_len_bucket"))
	g.BaseAddress, g.RegionSizeBytes, g.ScratchSizeBytes = r.whole(t, at, "base_address"), r.whole(t, at, "region_size_bytes"), r.whole(t, at, "scratch_size_bytes")
	g.MemoryUtilization, g.Strict = r.number(t, at, "memory_utilization"), r.flag(t, at, "strict")
	return g
}

func (r *reader) models(m map[string]any, v *schemas.Validated) {
	list := r.list(m, "", "models")
	for i, x := range list {
		at := fmt.Sprintf("models[%d].", i)
		t := r.object(x, strings.TrimSuffix(at, "."))
		if t == nil {
			continue
		}
		out := schemas.ValidatedModel{Name: r.text(t, at, "name"), WeightsFingerprint: r.text(t, at, "weights_fingerprint"), GraphsCaptured: int(r.whole(t, at, "graphs_captured")), ReplaySeen: r.flag(t, at, "replay_seen")}
		out.Path, _ = t["path"].(string)
		if ranks, ok := t["ranks"].([]any); ok {
			out.Ranks = len(ranks)
		} else {
			out.Ranks = int(r.whole(t, at, "ranks"))
		}
		if equal, ok := r.value(t, at, "token_ids_equal"); ok {
			e := r.object(equal, at+"token_ids_equal")
			out.TokenIDsEqual.OffSave, out.TokenIDsEqual.OffLoad = r.flag(e, at+"token_ids_equal.", "off_save"), r.flag(e, at+"token_ids_equal.", "off_load")
		}
		v.Models = append(v.Models, out)
	}
}

func (r *reader) switches(m map[string]any, v *schemas.Validated) {
	for i, x := range r.list(m, "", "switch_sequence") {
		at := fmt.Sprintf("switch_sequence[%d].", i)
		t := r.object(x, strings.TrimSuffix(at, "."))
		if t != nil {
			v.SwitchSequence = append(v.SwitchSequence, schemas.ValidatedSwitch{From: r.text(t, at, "from"), To: r.text(t, at, "to"), OK: r.flag(t, at, "ok")})
		}
	}
}

func (r *reader) checks(m map[string]any, v *schemas.Validated) {
	for i, x := range r.list(m, "", "checks") {
		at := fmt.Sprintf("checks[%d].", i)
		t := r.object(x, strings.TrimSuffix(at, "."))
		if t == nil {
			continue
		}
		c := schemas.ValidatedCheck{ID: r.text(t, at, "id"), OK: r.flag(t, at, "ok")}
		c.Detail, _ = t["detail"].(string)
		v.Checks = append(v.Checks, c)
	}
}

func (r *reader) files(m map[string]any, v *schemas.Validated) {
	list := r.list(m, "", "files")
	if len(list) > maxFiles {
		r.wrong("files", "has %d entries, more than the limit of %d", len(list), maxFiles)
		return
	}
	for i, x := range list {
		at := fmt.Sprintf("files[%d].", i)
		t := r.object(x, strings.TrimSuffix(at, "."))
		if t != nil {
			v.Files = append(v.Files, schemas.ValidatedFile{Path: r.text(t, at, "path"), Size: r.whole(t, at, "size"), SHA256: r.sum(r.text(t, at, "sha256"), at+"sha256")})
		}
	}
}

// decode reads one JSON document whose objects have every key once: readers differ in
// which of two they take.
func decode(b []byte) (any, error) {
	if len(b) > maxReportBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxReportBytes)
	}
	if err := unique(json.NewDecoder(bytes.NewReader(b))); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON document")
	}
	return doc, nil
}

// unique walks a document and refuses keys that stand twice in an object, and depth.
func unique(dec *json.Decoder) error {
	type level struct {
		keys map[string]bool // nil in a list
		key  bool            // a key is next
	}
	var open []level
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not JSON: %w", err)
		}
		top := len(open) - 1
		switch tok {
		case json.Delim('{'), json.Delim('['):
			if len(open) == maxDepth {
				return fmt.Errorf("nested deeper than %d levels", maxDepth)
			}
			if top >= 0 {
				open[top].key = true
			}
			l := level{}
			if tok == json.Delim('{') {
				l = level{keys: map[string]bool{}, key: true}
			}
			open = append(open, l)
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:top]
			continue
		}
		if top < 0 || open[top].keys == nil {
			continue
		}
		if !open[top].key {
			open[top].key = true
			continue
		}
		name, _ := tok.(string)
		if open[top].keys[name] {
			return fmt.Errorf("the key %.40q stands twice in one object", name)
		}
		open[top].keys[name], open[top].key = true, false
	}
}
