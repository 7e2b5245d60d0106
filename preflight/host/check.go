package host

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"assay/schemas"
)

// Need is what a service asks of its host.
type Need struct {
	// Engine is aegaeon or pypto: no other has rules for its host.
	Engine string
	// Env is what the service is started with beside the host's own variables.
	Env map[string]string
	// Graphs says that CUDA graphs are saved or loaded.
	Graphs bool
	// GPUs is how many the service uses, Connections how many requests are open at
	// once; 0 is not known.
	GPUs, Connections int
	// Port is the one that it listens on, 0 where that is not known.
	Port int
	// Ray is the address that the command gives, "local" where the engine starts Ray
	// itself; empty for that of the environment.
	Ray string
	// Recorded says that the facts were recorded before, perhaps on another host.
	Recorded bool
	Now      time.Time
}

// Check judges facts of a host. What is not known is unknown, which is no pass.
func Check(subject string, f schemas.HostFacts, n Need) []schemas.Finding {
	if n.Engine != "aegaeon" && n.Engine != "pypto" {
		return nil
	}
	c := &checker{subject: subject, facts: f, need: n, env: maps.Clone(f.Env)}
	if c.env == nil {
		c.env = map[string]string{}
	}
	for k, v := range n.Env {
		if slices.Contains(variables, k) {
			c.env[k] = v
		}
	}
	c.age()
	c.machine()
	c.limits()
	if n.Engine == "pypto" {
		c.npus()
		return c.findings
	}
	if !c.gpus() && len(f.Packages) == 0 {
		return c.findings // it is no host of GPUs at all: the rest would say the same again
	}
	c.route()
	c.devices()
	c.packages()
	c.extensions()
	c.shm()
	c.ray()
	if n.Graphs {
		c.graphs()
	}
	return c.findings
}

type checker struct {
	subject  string
	facts    schemas.HostFacts
	need     Need
	env      map[string]string
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

func (c *checker) pass(id, format string, args ...any) {
	c.add(id, schemas.SeverityPass, "", format, args...)
}

// Record is what to do where something is not known.
const Record = "on the host that serves: assay doctor --facts host.json; then give that file: assay preflight FILE --facts host.json"

func (c *checker) unknown(id, what, name string) {
	if why := c.facts.Unknown[name]; why != "" {
		what += ": " + why
	}
	c.add(id, schemas.SeverityUnknown, Record, "%s", what)
}

// maxAge is how old facts may be before they are doubted.
const maxAge = 30 * 24 * time.Hour

func (c *checker) age() {
	if !c.need.Recorded {
		return
	}
	switch age := c.need.Now.Sub(c.facts.RecordedAt); {
	case age < -time.Hour:
		c.warn("host.recorded", "record them again; one of two clocks is wrong", "facts of %s were recorded at %s, which is to come", c.facts.Host, c.facts.RecordedAt.Format(time.RFC3339))
	case age > maxAge:
		c.warn("host.recorded", "record them again: "+Record, "facts of %s are of %s", c.facts.Host, c.facts.RecordedAt.Format(time.DateOnly))
	default:
		c.pass("host.recorded", "facts of %s, recorded at %s", c.facts.Host, c.facts.RecordedAt.Format(time.RFC3339))
	}
}

func (c *checker) machine() {
	f := c.facts
	switch {
	case f.ClockSynced == nil:
		c.add("host.clock", schemas.SeverityWarning, "look whether a time service runs", "whether the clock is kept in step is not known")
	case !*f.ClockSynced:
		c.warn("host.clock", "start a time service: times of several hosts cannot be compared otherwise", "the clock is not kept in step with others")
	default:
		c.pass("host.clock", "the clock is kept in step")
	}
	if f.Governor != "" && f.Governor != "performance" {
		c.warn("host.governor", "set the governor performance", "the processor's clock follows the governor %s: times vary with load", f.Governor)
	}
	var set []string
	for _, name := range variables {
		if v := c.env[name]; v != "" && name != "LD_LIBRARY_PATH" && name != "CONDA_PREFIX" && name != "VIRTUAL_ENV" {
			set = append(set, name+"="+v)
		}
	}
	if len(set) > 0 {
		c.add("host.environment", schemas.SeverityInfo, "", "variables that change results are set: %s", strings.Join(set, ", "))
	}
	if c.env["CUDA_LAUNCH_BLOCKING"] == "1" {
		c.warn("host.blocking", "unset it", "CUDA_LAUNCH_BLOCKING waits for every kernel: times mean nothing")
	}
	for _, p := range f.Listening {
		if p == c.need.Port && p != 0 && c.need.Recorded {
			c.fail("host.port", "end the program that listens there, or give another port", "something listens on port %d already", p)
		}
	}
}

const (
	gib         = 1 << 30
	wantMemlock = 28 * gib // of the engine's own first steps: 8 of slabs, 20 of weights
	ownFiles    = 512      // that a service has open beside its connections
)

func (c *checker) limits() {
	f, want := c.facts, int64(c.need.Connections+ownFiles)
	switch {
	case f.OpenFiles == nil:
		c.unknown("host.open-files", "how many files may be open is not known", "open_files")
	case *f.OpenFiles >= 0 && *f.OpenFiles < want:
		c.fail("host.open-files", fmt.Sprintf("ulimit -n %d or more before the service is started", want), "%d files may be open; %d connections need about %d", *f.OpenFiles, c.need.Connections, want)
	default:
		c.pass("host.open-files", "enough files may be open")
	}
	if ports := f.PortLast - f.PortFirst; f.PortLast > 0 && ports < c.need.Connections {
		c.fail("host.port-range", "widen net.ipv4.ip_local_port_range", "connections have %d ports, %d are open at once", ports, c.need.Connections)
	}
	if c.need.Engine != "aegaeon" {
		return
	}
	switch {
	case f.MemlockBytes == nil:
		c.unknown("host.memlock", "the limit of locked memory is not known", "memlock_bytes")
	case *f.MemlockBytes >= 0 && *f.MemlockBytes < wantMemlock:
		c.warn("host.memlock", "ulimit -l unlimited before Ray is started: its workers inherit it", "%s of memory may be locked; keys, values and weights of a small service take 28 GiB", schemas.Size(*f.MemlockBytes))
	default:
		c.pass("host.memlock", "enough memory may be locked")
	}
}

func (c *checker) shm() {
	for _, file := range c.facts.ShmFiles {
		c.fail("host.shm-stale", "make sure that no other service runs there, then remove the file", "%s/%s (%s) is left over from an earlier service, or another one runs: sizes of such files are fixed", c.facts.ShmDir, file.Name, schemas.Size(file.Bytes))
	}
	if len(c.facts.ShmFiles) == 0 {
		c.pass("host.shm-stale", "nothing of an earlier service is in %s", c.facts.ShmDir)
	}
}

func (c *checker) ray() {
	switch answers := c.facts.RayAnswers; {
	case c.need.Ray == "local":
		c.pass("host.ray", "the engine starts Ray itself")
	case c.need.Ray != "" && c.need.Ray != "auto" && c.need.Ray != c.facts.RayAddress:
		c.unknown("host.ray", "whether a Ray cluster answers at "+c.need.Ray+" was not recorded", "ray_address")
	case answers == nil:
		c.unknown("host.ray", "whether a Ray cluster answers is not known", "ray_address")
	case c.facts.RayAddress == "":
		c.fail("host.ray", "start one there (ray start --head), then record the facts again; or set RAY_ADDRESS", "no Ray cluster runs there, and no address is set")
	case !*answers:
		c.fail("host.ray", "start the cluster, or correct RAY_ADDRESS", "nothing answers at the Ray cluster's address %s", c.facts.RayAddress)
	default:
		c.pass("host.ray", "a Ray cluster answers at %s", c.facts.RayAddress)
	}
}

func (c *checker) npus() {
	if len(c.facts.NPUs) == 0 {
		c.unknown("host.npus", "no NPU is known", "npus")
		return
	}
	c.pass("host.npus", "%d NPUs (%s)", len(c.facts.NPUs), c.facts.NPUs[0].Name)
}
