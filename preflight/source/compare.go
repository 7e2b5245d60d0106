package source

import (
	"fmt"
	"slices"
	"strings"

	"assay/schemas"
)

// Target is what a validated run is to be used for, and on what. What is not known is
// empty.
type Target struct {
	// Emulated says that the service is the emulated engine: it has no environment.
	Emulated bool
	// Facts are the machine's, by the names of schemas.ValidatedEnvironment in JSON.
	Facts map[string]string
	// Fingerprints are those of checkpoints, each with its level, by the names of models.
	Fingerprints map[string]string
	// Models are those that the experiment names; none: whatever the run has.
	Models []string
	// Sequence is the most tokens of prompt and output of a request, Batch the most
	// requests of a model at one time; 0: not known.
	Sequence, Batch int
}

// Compare tells, difference by difference, whether a validated run serves a target.
func Compare(r schemas.Validated, at string, t Target) []schemas.Finding {
	c := &comparison{subject: "source run " + at, report: r, target: t}
	c.models()
	c.shapes()
	c.environment()
	c.weights()
	c.memory()
	return c.findings
}

type comparison struct {
	subject  string
	report   schemas.Validated
	target   Target
	findings []schemas.Finding
}

func (c *comparison) add(id string, severity schemas.Severity, format string, args ...any) {
	f := schemas.Finding{ID: id, Severity: severity, Subject: c.subject, Path: ReportFile, Message: fmt.Sprintf(format, args...)}
	if severity != schemas.SeverityPass {
		f.Remedy = remedyOf(id)
	}
	c.findings = append(c.findings, f)
}

func (c *comparison) models() {
	var have []string
	for _, m := range c.report.Models {
		have = append(have, m.Name)
	}
	absent := false
	for _, m := range c.target.Models {
		if !slices.Contains(have, m) {
			absent = true
			c.add("source.model-absent", schemas.SeverityError, "the experiment asks model %s; the source run has %s", m, strings.Join(have, ", "))
		}
	}
	if !absent {
		c.add("source.model-absent", schemas.SeverityPass, "it has every model that is asked: %s", strings.Join(have, ", "))
	}
}

func (c *comparison) shapes() {
	g := c.report.Graph
	switch n := c.target.Sequence; {
	case n == 0:
	case n > g.SeqLenBucket:
		c.add("source.shape", schemas.SeverityError, "requests have up to %d tokens, the graphs serve sequences of up to %d: what is longer runs without them and nothing says so", n, g.SeqLenBucket)
	default:
		c.add("source.shape", schemas.SeverityPass, "requests have up to %d tokens, the graphs serve %d", n, g.SeqLenBucket)
	}
	switch n := c.target.Batch; {
	case n == 0:
	case len(g.BatchSizes) > 0 && n > slices.Max(g.BatchSizes):
		c.add("source.batch", schemas.SeverityWarning, "up to %d requests of a model may be decoded together, the largest graph is for %d", n, slices.Max(g.BatchSizes))
	default:
		c.add("source.batch", schemas.SeverityPass, "there is a graph for batches of up to %d", n)
	}
}

// facts are the environment's values by their names.
func facts(e schemas.ValidatedEnvironment) [][2]string {
	return [][2]string{{"aegaeon_revision", e.AegaeonRevision}, {"foundry_revision", e.FoundryRevision}, {"torch", e.Torch}, {"vllm", e.VLLM}, {"cuda", e.CUDA}, {"driver", e.Driver},
		{"gpu_name", e.GPUName}, {"compute_capability", e.ComputeCapability}, {"gpu_memory_bytes", fmt.Sprint(e.GPUMemoryBytes)}, {"hook_sha256", e.HookSHA256}}
}

func (c *comparison) environment() {
	switch {
	case c.report.Emulated != c.target.Emulated:
		words := map[bool]string{true: "the emulated engine", false: "a real one"}
		c.add("source.environment", schemas.SeverityError, "its graphs were saved on %s, the experiment serves on %s", words[c.report.Emulated], words[c.target.Emulated])
		return
	case c.target.Emulated:
		c.add("source.environment", schemas.SeverityPass, "both are of the emulated engine")
		return
	}
	var unknown []string
	for _, f := range facts(c.report.Environment) {
		name, want := f[0], f[1]
		have := c.target.Facts[name]
		switch {
		case have == "":
			unknown = append(unknown, name)
		case !strings.EqualFold(strings.TrimPrefix(have, "sha256:"), strings.TrimPrefix(want, "sha256:")):
			c.add("source.environment", schemas.SeverityError, "%s is %s here, %s where the graphs were saved", name, have, want)
		}
	}
	if len(unknown) > 0 {
		c.add("source.environment", schemas.SeverityUnknown, "not known of this machine: %s (the source run has %s)", strings.Join(unknown, ", "), c.values(unknown))
		c.findings[len(c.findings)-1].Remedy = "say them under [facts] of the machine file"
		return
	}
	if !slices.ContainsFunc(c.findings, func(f schemas.Finding) bool { return f.ID == "source.environment" }) {
		c.add("source.environment", schemas.SeverityPass, "software and device are those of the source run")
	}
}

func (c *comparison) values(names []string) string {
	var out []string
	for _, f := range facts(c.report.Environment) {
		if slices.Contains(names, f[0]) {
			out = append(out, f[0]+" = "+f[1])
		}
	}
	return strings.Join(out, ", ")
}

func (c *comparison) weights() {
	if c.target.Emulated {
		return
	}
	for _, m := range c.report.Models {
		have := c.target.Fingerprints[m.Name]
		switch {
		case have == "":
			c.add("source.weights", schemas.SeverityUnknown, "the checkpoint of %s is not known here", m.Name)
			c.findings[len(c.findings)-1].Remedy = "give the experiment a [model] with its name and checkpoint"
		case m.WeightsFingerprint == have:
			c.add("source.weights", schemas.SeverityPass, "the checkpoint of %s is the one its graphs were saved with", m.Name)
		case sameScheme(m.WeightsFingerprint, have):
			c.add("source.weights", schemas.SeverityError, "the checkpoint of %s is %s here, %s where its graphs were saved", m.Name, have, m.WeightsFingerprint)
		default:
			c.add("source.weights", schemas.SeverityUnknown, "the source run names the checkpoint of %s %q, which cannot be compared with %s", m.Name, m.WeightsFingerprint, have)
			c.findings[len(c.findings)-1].Remedy = "compare them by hand"
		}
	}
}

// sameScheme says whether two fingerprints were made alike: sha256:HEX and the level.
func sameScheme(a, b string) bool {
	x, level, ok := strings.Cut(a, " ")
	y, other, _ := strings.Cut(b, " ")
	return ok && level == other && schemas.Digest(x).Valid() && schemas.Digest(y).Valid()
}

func (c *comparison) memory() {
	if c.target.Emulated {
		return
	}
	g := c.report.Graph
	n, ok := wholeOf(c.target.Facts["gpu_memory_bytes"])
	switch {
	case !ok || n <= 0:
		c.add("source.memory", schemas.SeverityUnknown, "the memory of the device is not known: whether %d bytes of scratch leave room cannot be told", g.ScratchSizeBytes)
		c.findings[len(c.findings)-1].Remedy = "say gpu_memory_bytes under [facts] of the machine file"
	case g.ScratchSizeBytes >= n:
		c.add("source.memory", schemas.SeverityError, "scratch_size_bytes is %d, the device has %d bytes", g.ScratchSizeBytes, n)
	default:
		c.add("source.memory", schemas.SeverityPass, "the scratch of %d bytes leaves room on %d", g.ScratchSizeBytes, n)
	}
}
