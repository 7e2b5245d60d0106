package preflight

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"assay/preflight/aegaeon"
)

// remote are programs that start others on another host: nothing of this one tells
// of it.
var remote = []string{"srun", "salloc", "sbatch", "ssh", "mpirun", "kubectl"}

// host is what can be seen of this host without asking any driver, for a service that
// is started on it; what the machine file says comes first.
func (c *collector) host(argv []string, env map[string]string) aegaeon.Host {
	h := aegaeon.Host{GPUName: c.task.Facts["gpu_name"]}
	h.GPUMemory, _ = strconv.ParseInt(c.task.Facts["gpu_memory_bytes"], 10, 64)
	if f := c.task.Host; f != nil {
		return recordedHost(h, f, env)
	}
	if slices.Contains(remote, filepath.Base(argv[0])) {
		return h
	}
	h.CPUs = runtime.NumCPU()
	h.MemAvailable = memAvailable("/proc/meminfo")
	shm := env["AEGAEON_SHM_DIR"]
	if shm == "" {
		shm = "/dev/shm"
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err == nil {
		free := int64(fs.Bavail) * fs.Bsize
		h.ShmFree = &free
	}
	h.Memlock = memlock("/proc/self/limits")
	h.GPUs = visible(env, "/dev")
	if h.GPUName == "" {
		h.GPUName = gpuName("/proc/driver/nvidia/gpus")
	}
	return h
}

// gpuName is the product name of the first GPU as its driver gives it, "" for none.
func gpuName(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*", "information"))
	for _, f := range files {
		if name := field(f, "Model:", func(words []string) *string { s := strings.Join(words, " "); return &s }); name != nil {
			return *name
		}
	}
	return ""
}

func memAvailable(path string) *int64 {
	return field(path, "MemAvailable:", func(words []string) *int64 {
		n, err := strconv.ParseInt(words[0], 10, 64)
		if n *= 1024; err != nil {
			return nil
		}
		return &n
	})
}

// memlock is the soft limit, -1 for none.
func memlock(path string) *int64 {
	return field(path, "Max locked memory", func(words []string) *int64 {
		n, err := strconv.ParseInt(words[0], 10, 64)
		if words[0] == "unlimited" {
			n, err = -1, nil
		}
		if err != nil {
			return nil
		}
		return &n
	})
}

// field gives the words after a name that a line of a file begins with.
func field[T any](path, name string, value func(words []string) *T) *T {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok && len(strings.Fields(rest)) > 0 {
			return value(strings.Fields(rest))
		}
	}
	return nil
}

// visible counts GPUs by their device files, or those that a variable chooses of
// them; 0 is not known.
func visible(env map[string]string, dev string) int {
	files, _ := filepath.Glob(filepath.Join(dev, "nvidia[0-9]*"))
	for _, name := range []string{"AEGAEON_CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} {
		if v := env[name]; v != "" && len(files) > 0 {
			return min(len(files), len(strings.Split(v, ",")))
		}
	}
	return len(files)
}
