package host

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"assay/internal/durable"
	"assay/schemas"
)

// Sources is where facts come from.
type Sources struct {
	// Root is put before paths of the system, "" on a real host.
	Root string
	// Env gives variables as the service will see them.
	Env func(name string) string
	// Run gives what a tool prints.
	Run func(ctx context.Context, argv []string) ([]byte, error)
	// Programs are absolute paths of entry points: the Python environment of the first
	// that lies in one comes before the one that a variable names.
	Programs []string
	// DiskDir is the folder whose room is asked for.
	DiskDir string
	Now     time.Time
}

// variables change results, or where things are looked for. No other is recorded: a
// secret may stand in any.
var variables = []string{"CUDA_VISIBLE_DEVICES", "AEGAEON_CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "AEGAEON_DUMMY_WEIGHTS", "AEGAEON_TTFT_SLO", "AEGAEON_TPOT_SLO",
	"AEGAEON_SHM_DIR", "AEGAEON_ARENA_FRACTION", "AEGAEON_GPU_FREQ_CONTROL", "AEGAEON_FOUNDRY_HOOK_PATH", "AEGAEON_CUDA_COMPAT_PATH", "AEGAEON_RAY_TEMP_DIR",
	"LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "RAY_ADDRESS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_P2P_DISABLE", "OMP_NUM_THREADS",
	"PYPTO_CACHE", "PYPTO_CACHE_DIR", "PYPTO_CACHE_READONLY", "PYPTO_PROG_BUILD_DIR", "PYPTO_RUNTIME_LOG", "HCCL_INTRA_ROCE_ENABLE"}

// secret is what a value must not look like, whatever its name.
var secret = regexp.MustCompile(`(?i)(://[^/\s]*@|\b(sk|hf|ghp|xox[bp])[-_]\w{8,}|eyJ[\w-]{10,}\.|bearer |password|token=)`)

type collector struct {
	Sources
	facts schemas.HostFacts
}

// Collect records facts of this host. It starts the vendors' tools alone, reads no
// weights, and fails for nothing: what cannot be learnt is missing, with a reason.
func Collect(ctx context.Context, s Sources) schemas.HostFacts {
	c := &collector{Sources: s, facts: schemas.HostFacts{Schema: schemas.HostFactsV1, RecordedAt: s.Now.UTC(), CPUs: runtime.NumCPU(), Env: map[string]string{}, Unknown: map[string]string{}}}
	c.variables()
	c.system()
	c.limits()
	c.shm()
	c.devices(ctx)
	c.python()
	c.libraries()
	c.ray(ctx)
	return c.facts
}

func (c *collector) unknown(name, format string, args ...any) {
	c.facts.Unknown[name] = fmt.Sprintf(format, args...)
}

func (c *collector) variables() {
	for _, name := range variables {
		switch v := c.Env(name); {
		case v == "":
		case secret.MatchString(v), len(v) > 4096:
			c.unknown("env."+name, "its value is not recorded: it is too long, or looks like a secret")
		default:
			c.facts.Env[name] = v
		}
	}
}

// text is the content of a file of the system, "" where there is none.
func (c *collector) text(path string) string {
	b, err := readFile(c.Root + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func readFile(path string) ([]byte, error) { return readBounded(path, maxText) }

func readBounded(path string, most int64) ([]byte, error) {
	f, err := durable.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

func (c *collector) system() {
	f := &c.facts
	f.Host, _ = os.Hostname()
	f.Kernel = c.text("/proc/sys/kernel/osrelease")
	f.Governor = c.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	for line := range strings.Lines(c.text("/etc/os-release")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(value, `"'`); key {
		case "ID":
			f.Distribution = value
		case "VERSION_ID":
			f.Version = value
		}
	}
	f.Glibc = c.glibc()
	f.MemAvailableBytes = c.number("/proc/meminfo", "MemAvailable:", 1024)
	if ports := strings.Fields(c.text("/proc/sys/net/ipv4/ip_local_port_range")); len(ports) == 2 {
		f.PortFirst, _ = strconv.Atoi(ports[0])
		f.PortLast, _ = strconv.Atoi(ports[1])
	}
	f.Listening = listening(c.text("/proc/net/tcp") + "\n" + c.text("/proc/net/tcp6"))
	if c.DiskDir != "" {
		f.DiskDir, f.DiskFreeBytes = c.DiskDir, room(c.DiskDir)
	}
	state, err := unix.Adjtimex(&unix.Timex{})
	if err != nil {
		c.unknown("clock_synced", "%v", err)
		return
	}
	synced := state != unix.TIME_ERROR
	f.ClockSynced = &synced
}

// glibcText stands in the library itself.
var glibcText = regexp.MustCompile(`GNU C Library [^\n]*? version (\d+\.\d+)`)

func (c *collector) glibc() string {
	for _, pattern := range []string{"/lib/*/libc.so.6", "/lib64/libc.so.6", "/usr/lib64/libc.so.6"} {
		files, _ := filepath.Glob(c.Root + pattern)
		for _, path := range files {
			f, err := durable.OpenRegular(path)
			if err != nil {
				continue
			}
			b, err := io.ReadAll(io.LimitReader(f, 16<<20))
			f.Close()
			if m := glibcText.FindSubmatch(b); err == nil && m != nil {
				return string(m[1])
			}
		}
	}
	return ""
}

// number is the one that follows a name at the beginning of a line, -1 for unlimited.
func (c *collector) number(path, name string, unit int64) *int64 {
	for line := range strings.Lines(c.text(path)) {
		rest, ok := strings.CutPrefix(line, name)
		words := strings.Fields(rest)
		if !ok || len(words) == 0 {
			continue
		}
		n, err := strconv.ParseInt(words[0], 10, 64)
		n *= unit
		if words[0] == "unlimited" {
			n, err = -1, nil
		}
		if err != nil {
			return nil
		}
		return &n
	}
	return nil
}

// listening are the ports in state 0A of the kernel's tables.
func listening(tables string) []int {
	var out []int
	for line := range strings.Lines(tables) {
		words := strings.Fields(line)
		if len(words) < 4 || words[3] != "0A" {
			continue
		}
		_, hex, _ := strings.Cut(words[1], ":")
		if n, err := strconv.ParseUint(hex, 16, 16); err == nil {
			out = append(out, int(n))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func room(dir string) *int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil
	}
	free := int64(fs.Bavail) * fs.Bsize
	return &free
}

func (c *collector) limits() {
	c.facts.MemlockBytes = c.number("/proc/self/limits", "Max locked memory", 1)
	c.facts.OpenFiles = c.number("/proc/self/limits", "Max open files", 1)
}

// shm lists what an earlier service has left by the names that the engine gives.
func (c *collector) shm() {
	dir := c.Env("AEGAEON_SHM_DIR")
	if dir == "" {
		dir = c.Root + "/dev/shm"
	}
	c.facts.ShmDir, c.facts.ShmFreeBytes = strings.TrimPrefix(dir, c.Root), room(dir)
	files, _ := filepath.Glob(filepath.Join(dir, "aegaeon*"))
	for _, path := range files {
		if info, err := os.Lstat(path); err == nil && len(c.facts.ShmFiles) < maxDevices {
			c.facts.ShmFiles = append(c.facts.ShmFiles, schemas.HostFile{Name: filepath.Base(path), Bytes: info.Size()})
		}
	}
}

func (c *collector) devices(ctx context.Context) {
	out, err := c.Run(ctx, NvidiaQuery)
	if err == nil {
		c.facts.GPUs, c.facts.DriverVersion, err = ParseNvidia(out)
	}
	if err != nil {
		c.unknown("gpus", "%v", err)
	}
	if out, err = c.Run(ctx, NPUQuery); err == nil {
		c.facts.NPUs, err = ParseNPU(out)
	}
	if err != nil {
		c.unknown("npus", "%v", err)
	}
}

// ray finds the cluster's address as Ray does, and whether something accepts there.
func (c *collector) ray(ctx context.Context) {
	address := c.Env("RAY_ADDRESS")
	if address == "" || address == "auto" {
		address = c.text("/tmp/ray/ray_current_cluster")
	}
	answers := false
	if c.facts.RayAddress = strings.TrimPrefix(address, "ray://"); address != "" {
		if secret.MatchString(address) {
			c.facts.RayAddress = ""
			c.unknown("ray_address", "its value looks like a secret")
			return
		}
		d := net.Dialer{Timeout: time.Second}
		if conn, err := d.DialContext(ctx, "tcp", c.facts.RayAddress); err == nil {
			answers = true
			conn.Close()
		}
	}
	c.facts.RayAnswers = &answers
}
