package preflight

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	engine "assay/internal/engines/aegaeon"
	"assay/internal/fingerprint"
	"assay/pipeline"
	"assay/preflight/aegaeon"
	"assay/preflight/checkpoint"
	"assay/preflight/disk"
	"assay/preflight/host"
	"assay/preflight/paths"
	"assay/preflight/ports"
	"assay/schemas"
)

// toolLimit bounds a vendor's tool: some hang when a driver does.
const toolLimit = 15 * time.Second

// checkHosts checks the host of every real engine that the experiment starts: by facts
// that were recorded on it, or of this machine.
func checkHosts(ctx context.Context, c *collector) {
	for _, name := range slices.Sorted(maps.Keys(c.task.Experiment.Service)) {
		svc := c.task.Experiment.Service[name]
		set := schemas.Settings(svc.Config)
		if (svc.Engine != "aegaeon" && svc.Engine != "pypto") || len(set.List("command")) == 0 {
			continue
		}
		for _, t := range c.trials() {
			argv := c.resolveAll(set.List("command"), t)
			need := c.need(name, svc, t)
			need.Ray = option(argv, "--ray-address")
			subject := "service " + name + ": host"
			if !c.first(subject, fmt.Sprint(argv[0], need)) {
				continue
			}
			c.hostOf(ctx, subject, argv, need)
		}
	}
}

func (c *collector) hostOf(ctx context.Context, subject string, argv []string, need host.Need) {
	need.Now = time.Now()
	if f := c.task.Host; f != nil {
		need.Recorded = true
		c.add(host.Check(subject, *f, need)...)
		return
	}
	if slices.Contains(remote, filepath.Base(argv[0])) {
		c.add(schemas.Finding{ID: "host.facts", Severity: schemas.SeverityUnknown, Subject: subject, Remedy: host.Record,
			Message: argv[0] + " starts the service on another host, of which nothing is known"})
		return
	}
	facts := host.Collect(ctx, host.Sources{Now: need.Now, Programs: argv[:1], DiskDir: c.task.StoreDir, Run: c.tool, Env: variable(need)})
	c.add(host.Check(subject, facts, need)...)
}

// variable is one as the service will see it.
func variable(need host.Need) func(name string) string {
	return func(name string) string {
		if name == "RAY_ADDRESS" && need.Ray != "" && need.Ray != "local" {
			return need.Ray
		}
		return cmp.Or(need.Env[name], os.Getenv(name))
	}
}

// option is the value of an option of a command, "" without it.
func option(argv []string, name string) string {
	for i, arg := range argv {
		if v, ok := strings.CutPrefix(arg, name+"="); ok {
			return v
		}
		if arg == name && i+1 < len(argv) {
			return argv[i+1]
		}
	}
	return ""
}

// need is what a service asks of its host.
func (c *collector) need(name string, svc schemas.Service, t schemas.Trial) host.Need {
	set := schemas.Settings(svc.Config)
	n := host.Need{Engine: svc.Engine, Env: c.environment(name, t), Connections: c.loadOf(name, t).Concurrency}
	if port, err := c.task.Resolve(set.Text("port"), t); err == nil {
		n.Port, _ = strconv.Atoi(port)
	}
	file, err := c.task.Resolve(set.Text("aegaeon_config"), t)
	if err != nil || file == "" {
		return n
	}
	config, err := engine.ReadConfig(c.task.Abs(file))
	if err != nil {
		return n // which is said where configurations are checked
	}
	mode, err := c.task.Resolve(set.Text("graph_mode"), t)
	if err != nil || mode == "" {
		mode = fmt.Sprint(config.Server.CUDAGraph.Mode)
	}
	n.Graphs = mode == "save" || mode == "load"
	n.GPUs = config.Server.NumEngines
	for _, more := range []*int{config.Server.NumPrefillEngines, config.Server.NumDecodeEngines} {
		switch {
		case more != nil:
			n.GPUs += *more
		case config.Server.NumEngines == 0:
			n.GPUs++
		}
	}
	return n
}

// tool runs a vendor's tool.
func (c *collector) tool(ctx context.Context, argv []string) ([]byte, error) {
	if c.task.Supervise == nil {
		return nil, errors.New("programs cannot be started here")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, toolLimit, fmt.Errorf("%s: no answer within %s", argv[0], toolLimit))
	defer cancel()
	var out bytes.Buffer
	code, err := c.task.Supervise.Run(ctx, pipeline.Command{Argv: argv, Env: os.Environ(), Stdout: &out, Stderr: &bytes.Buffer{}})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s is not installed", argv[0])
	case err == nil && code != 0:
		err = fmt.Errorf("%s ended with exit code %d", argv[0], code)
	}
	return out.Bytes(), err
}

// elsewhere says that something belongs to the recorded host, where this machine tells
// nothing of it.
func (c *collector) elsewhere(subject, what string) bool {
	if c.task.Host == nil {
		return false
	}
	c.add(schemas.Finding{ID: "host.elsewhere", Severity: schemas.SeverityDeferred, Subject: subject,
		Message: what + " is checked on " + c.task.Host.Host + " when the experiment runs there: its facts do not tell"})
	return true
}

// at checks a path. One outside of the experiment's folder that is not here belongs to
// the recorded host.
func (c *collector) at(subject, path string) {
	if c.recorded(subject, path) {
		return
	}
	c.add(paths.Check(subject, path))
}

// recorded judges a path of the recorded host, and says whether it is one.
func (c *collector) recorded(subject, path string) bool {
	f := c.task.Host
	if f == nil || !filepath.IsAbs(path) {
		return false
	}
	for _, folder := range f.Folders {
		if folder.Path == path {
			c.add(host.Folder(subject, folder))
			return true
		}
	}
	below, err := filepath.Rel(c.task.Abs("."), path)
	if own := err == nil && filepath.IsLocal(below); own {
		return false
	}
	if _, err := os.Lstat(path); err == nil {
		return false
	}
	return c.elsewhere(subject, path)
}

// port checks a port of this machine; of a recorded host, that nothing listened there.
func (c *collector) port(subject, port string) {
	f := c.task.Host
	if f == nil {
		c.add(ports.Check(subject, port))
		return
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 {
		c.add(ports.Check(subject, port)) // which says so
		return
	}
	finding := schemas.Finding{ID: "host.port", Severity: schemas.SeverityPass, Subject: subject, Message: fmt.Sprintf("nothing listened on port %d of %s", n, f.Host)}
	if slices.Contains(f.Listening, n) {
		finding.Severity, finding.Message, finding.Remedy = schemas.SeverityError, fmt.Sprintf("something listened on port %d of %s", n, f.Host), "end the program that listens there, or give another port"
	}
	c.add(finding)
}

// free is the room of this machine, or that which was recorded.
func (c *collector) free() disk.Free {
	f := c.task.Host
	if f == nil {
		return disk.Statfs
	}
	return func(string) (int64, error) {
		if f.DiskFreeBytes == nil {
			return 0, errors.New("the facts of " + f.Host + " do not tell it")
		}
		return *f.DiskFreeBytes, nil
	}
}

// recordedHost is what recorded facts tell of budgets.
func recordedHost(h aegaeon.Host, f *schemas.HostFacts, env map[string]string) aegaeon.Host {
	h.CPUs, h.MemAvailable, h.Memlock = f.CPUs, f.MemAvailableBytes, f.MemlockBytes
	if dir := env["AEGAEON_SHM_DIR"]; dir == "" || dir == f.ShmDir {
		h.ShmFree = f.ShmFreeBytes
	}
	h.GPUs = len(f.GPUs)
	for _, name := range []string{"AEGAEON_CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} {
		if v := cmp.Or(env[name], f.Env[name]); v != "" {
			h.GPUs = min(h.GPUs, len(strings.Split(v, ",")))
			break
		}
	}
	if len(f.GPUs) > 0 {
		h.GPUName, h.GPUMemory = cmp.Or(h.GPUName, f.GPUs[0].Name), cmp.Or(h.GPUMemory, f.GPUs[0].MemoryBytes)
	}
	return h
}

// recordedPin holds a pinned fingerprint against the one that was recorded.
func (c *collector) recordedPin(subject, path string, m schemas.Model) {
	if c.task.Host == nil || m.Fingerprint == "" {
		return
	}
	for _, f := range c.task.Host.Folders {
		if f.Path == path && f.Fingerprint != "" && m.Level() == fingerprint.Header {
			c.add(checkpoint.Pinned(subject, m.Level(), m.Fingerprint, f.Fingerprint, nil))
			return
		}
	}
	c.elsewhere(subject, "the pinned fingerprint of "+path)
}
