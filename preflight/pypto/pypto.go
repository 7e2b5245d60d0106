package pypto

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/schemas"
)

// Facts are what is known beside the command line.
type Facts struct {
	Env map[string]string
	// Help is the text of the program's --help; empty: not known.
	Help string
	// Architecture and Quantization are those that the model's config.json names;
	// empty: not known.
	Architecture, Quantization string
	Index                      *bool // the checkpoint has an index of shards; nil: not known
	Shards                     int   // weight files; 0: not known
	ContextLength              int64 // 0: not known
	Devices                    []int // that the host has; nil: not known
	Load                       Load
}

// Load is the worst that a workload asks for at once; 0 is not known.
type Load struct{ Concurrency, Sequence int }

type checker struct {
	subject  string
	findings []schemas.Finding
}

func (c *checker) add(id string, s schemas.Severity, remedy, format string, args ...any) {
	c.findings = append(c.findings, schemas.Finding{ID: id, Severity: s, Subject: c.subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (c *checker) fail(id, remedy, format string, args ...any) {
	c.add(id, schemas.SeverityError, remedy, format, args...)
}

func (c *checker) warn(id, remedy, format string, args ...any) {
	c.add(id, schemas.SeverityWarning, remedy, format, args...)
}

func (c *checker) unknown(id, remedy, format string, args ...any) {
	c.add(id, schemas.SeverityUnknown, remedy, format, args...)
}

// Command checks a command that starts the engine.
func Command(subject string, argv []string, f Facts) []schemas.Finding {
	c := &checker{subject: subject}
	set := c.parse(argv, f.Help)
	c.mode(set)
	c.generate(set)
	method := c.speculative(set)
	c.topology(set, f, method)
	c.model(set, f, method)
	c.profile(set, f.Env)
	c.cache(set, f)
	c.load(set, f.Load)
	if !slices.ContainsFunc(c.findings, func(f schemas.Finding) bool {
		return f.Severity == schemas.SeverityError || f.Severity == schemas.SeverityUnknown
	}) {
		c.add("pypto.command", schemas.SeverityPass, "", "the command fits the engine, its model and its devices, as far as they are known")
	}
	return c.findings
}

// one checks the value of one option by itself.
func (c *checker) one(o option, value string) {
	switch {
	case len(o.enum) > 0 && !slices.Contains(o.enum, value):
		c.fail("pypto.option", "write one of "+strings.Join(o.enum, ", "), "option %s: %.60q is none of %s", o.long, value, strings.Join(o.enum, ", "))
	case o.whole && !placeholder(value):
		if n, err := strconv.Atoi(value); err != nil || n < o.min {
			c.fail("pypto.option", "write a whole number", "option %s: %.60q is no whole number of %d or more", o.long, value, o.min)
		}
	case strings.HasPrefix(o.long, "--ring-"):
		parts := strings.Split(value, ",")
		for _, p := range parts {
			if _, err := strconv.Atoi(strings.TrimSpace(p)); err != nil || (len(parts) != 1 && len(parts) != 4) {
				c.fail("pypto.option", "write one whole number or four, separated by commas", "option %s: %.60q", o.long, value)
				return
			}
		}
	case o.long == "--npu-memory-utilization":
		if v, err := strconv.ParseFloat(value, 64); err != nil || !(v > 0 && v <= 1) {
			c.fail("pypto.option", "write a number above 0 and at most 1", "option %s: %.60q", o.long, value)
		}
	}
}

// placeholder says whether a value is filled in when the engine is started.
func placeholder(v string) bool { return strings.Contains(v, "{") || strings.Contains(v, "$") }

// number is the value of an option that is a whole number; ok is false where it is
// none, or is filled in later.
func (s settings) number(name string, otherwise int) (n int, ok bool) {
	n, err := strconv.Atoi(s.or(name, strconv.Itoa(otherwise)))
	return n, err == nil
}

func (c *checker) mode(set settings) {
	if !set.has("--model") {
		c.fail("pypto.model", "give --model with the folder of the checkpoint", "there is no --model")
	}
	if set.has("--prompt") {
		c.fail("pypto.offline", "remove --prompt", "--prompt makes the program generate and exit: it is no service then")
	}
	role := set.or("--pd-role", "disabled")
	if (role != "disabled") != (set.or("--pd-config", "") != "") {
		c.fail("pypto.option", "give --pd-role and --pd-config together, or neither", "--pd-role %.30s with --pd-config %.80q", role, set.or("--pd-config", ""))
	}
}

// object decodes the JSON object of an option strictly into out.
func (c *checker) object(set settings, name string, out any) bool {
	if !set.has(name) {
		return false
	}
	dec := json.NewDecoder(strings.NewReader(set[name]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(out); err != nil || !bytes.HasPrefix(bytes.TrimSpace([]byte(set[name])), []byte("{")) {
		c.fail("pypto.config", "write a JSON object with the keys that the option knows", "option %s: %v", name, err)
		return false
	}
	if _, err := dec.Token(); err != io.EOF {
		c.fail("pypto.config", "write one JSON object", "option %s: something follows the object", name)
		return false
	}
	return true
}

// generate checks the defaults of generation.
func (c *checker) generate(set settings) {
	var g struct {
		MaxNewTokens *int     `json:"max_new_tokens"`
		Temperature  *float64 `json:"temperature"`
		TopP         *float64 `json:"top_p"`
		TopK         *int     `json:"top_k"`
		Seed         *int64   `json:"seed"`
		Stop         []string `json:"stop"`
		Stream       *bool    `json:"stream"`
		IgnoreEOS    *bool    `json:"ignore_eos"`
	}
	if !c.object(set, "--generate-config", &g) {
		return
	}
	bad := func(name, want string) {
		c.fail("pypto.config", "correct the value", "option --generate-config: %s: want %s", name, want)
	}
	if g.MaxNewTokens != nil && *g.MaxNewTokens < 1 {
		bad("max_new_tokens", "1 or more")
	}
	if g.Temperature != nil && !(*g.Temperature >= 0) {
		bad("temperature", "0 or more")
	}
	if g.TopP != nil && !(*g.TopP > 0 && *g.TopP <= 1) {
		bad("top_p", "above 0 and at most 1")
	}
	if g.TopK != nil && *g.TopK < 1 {
		bad("top_k", "1 or more, or null: 0 is refused")
	}
	if g.Seed != nil && *g.Seed < 0 {
		bad("seed", "0 or more, or null")
	}
	if g.Temperature != nil && *g.Temperature > 0 && g.Seed == nil {
		c.warn("pypto.sampling", "set temperature to 0, or a seed", "option --generate-config: temperature above 0 without a seed: answers differ from run to run")
	}
}

// speculative returns the method, "" for none.
func (c *checker) speculative(set settings) string {
	var s struct {
		Method string `json:"method"`
		Tokens *int   `json:"num_speculative_tokens"`
	}
	if set.has("--num-speculative-tokens") {
		if set.has("--speculative-config") {
			c.fail("pypto.speculative", "remove --num-speculative-tokens", "--num-speculative-tokens cannot stand beside --speculative-config")
		} else {
			c.warn("pypto.speculative", "write --speculative-config", "--num-speculative-tokens is deprecated")
		}
	}
	if !c.object(set, "--speculative-config", &s) {
		return ""
	}
	k := -1
	if s.Tokens != nil {
		k = *s.Tokens
	}
	switch {
	case s.Method == "mtp" && k > 0, s.Method == "dspark" && (k == 0 || k == 7):
	case s.Method == "mtp":
		c.fail("pypto.speculative", "give a number above 0", "method mtp wants num_speculative_tokens above 0")
	case s.Method == "dspark":
		c.fail("pypto.speculative", "write 0 or 7", "method dspark wants num_speculative_tokens 0 or 7")
	default:
		c.fail("pypto.speculative", "write mtp or dspark", "option --speculative-config: method %.40q is none of mtp, dspark", s.Method)
	}
	if s.Method == "mtp" && k > 1 && set.has("--enable-prefix-caching") {
		c.warn("pypto.speculative", "leave the option out", "--enable-prefix-caching has no effect with more than one speculative token")
	}
	return s.Method
}

// profile checks the options of profiling.
func (c *checker) profile(set settings, env map[string]string) {
	for _, name := range []string{"--profile-output", "--profile-level"} {
		if set.has(name) && !set.has("--profile") {
			c.fail("pypto.profile", "add --profile, or leave it out", "option %s is refused without --profile", name)
		}
	}
	for _, level := range strings.Split(set.or("--profile-level", "e2e"), ",") {
		if !slices.Contains([]string{"e2e", "kernel", "verbose"}, strings.ToLower(strings.TrimSpace(level))) {
			c.fail("pypto.profile", "write levels of e2e, kernel, verbose, separated by commas", "option --profile-level: %.40q is no level", level)
		}
	}
	if set.has("--profile") {
		c.warn("pypto.profile", "measure without --profile; profile in a run of its own", "--profile is on: times of a run that is profiled are no results")
		if out := set.or("--profile-output", "./profile_out"); !filepath.IsAbs(out) && !placeholder(out) {
			c.warn("pypto.profile", "write an absolute folder", "profiles go to %.80q, which depends on the working folder", out)
		}
	}
	if _, ok := env["SA_PROFILE_MAIN_PID"]; ok {
		c.fail("pypto.profile", "unset it", "SA_PROFILE_MAIN_PID is set: only the program itself sets it")
	}
}
