package host

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/schemas"
)

const busyBytes = gib // more than a driver takes for itself

// gpus says whether any are known.
func (c *checker) gpus() bool {
	f := c.facts
	if len(f.GPUs) == 0 {
		c.unknown("host.gpus", "no GPU is known", "gpus")
		return false
	}
	c.pass("host.gpus", "%d GPUs (%s, %s)", len(f.GPUs), f.GPUs[0].Name, schemas.Size(f.GPUs[0].MemoryBytes))
	chosen, _ := c.chosen()
	busy := false
	for i, g := range f.GPUs {
		if chosen != nil && !slices.Contains(chosen, g.Index) {
			continue
		}
		if g.Name != f.GPUs[0].Name && i > 0 {
			c.warn("host.gpu-alike", "choose GPUs of one kind", "GPU %d is a %s, GPU %d a %s", f.GPUs[0].Index, f.GPUs[0].Name, g.Index, g.Name)
		}
		if g.UsedBytes > busyBytes {
			busy = true
			c.fail("host.gpu-busy", "end what runs there, or choose another", "%s of GPU %d are in use already", schemas.Size(g.UsedBytes), g.Index)
		}
	}
	if !busy {
		c.pass("host.gpu-busy", "nothing else uses the GPUs")
	}
	return true
}

// cuda is the version of the CUDA route, by torch's build.
func (c *checker) cuda() string { return torchCUDA(c.facts.Packages["torch"]) }

// route checks driver, GPU and distribution against what the CUDA route supports.
func (c *checker) route() {
	f, cuda := c.facts, c.cuda()
	least := "525"
	if compare(cuda, "13.0") >= 0 {
		least = "580.95.05"
	}
	switch {
	case f.DriverVersion == "":
		c.unknown("host.driver", "the driver's version is not known", "gpus")
	case compare(f.DriverVersion, least) < 0:
		c.fail("host.driver", "install driver "+least+" or later", "driver %s: CUDA %s takes %s or later", f.DriverVersion, orSome(cuda), least)
	default:
		c.pass("host.driver", "driver %s", f.DriverVersion)
	}
	for _, g := range f.GPUs {
		switch {
		case g.Capability == "":
			c.unknown("host.capability", "the compute capability of GPU "+strconv.Itoa(g.Index)+" is not known", "gpus")
		case compare(g.Capability, "7.5") < 0:
			c.fail("host.capability", "use a GPU of 7.5 or later", "GPU %d (%s) has compute capability %s", g.Index, g.Name, g.Capability)
		default:
			c.pass("host.capability", "GPU %d has compute capability %s", g.Index, g.Capability)
		}
	}
	switch {
	case f.Glibc == "":
		c.unknown("host.distribution", "the version of the C library is not known", "glibc")
	case compare(f.Glibc, "2.28") < 0:
		c.fail("host.distribution", "use a later distribution", "the C library is %s: 2.28 or later is wanted", f.Glibc)
	case f.Distribution == "ubuntu" && compare(f.Version, "20.04") <= 0 && compare(cuda, "13.0") >= 0:
		c.fail("host.distribution", "use a later distribution, or CUDA 12.9", "CUDA %s is not for Ubuntu %s", cuda, f.Version)
	default:
		c.pass("host.distribution", "%s %s with C library %s", f.Distribution, f.Version, f.Glibc)
	}
}

func orSome(version string) string {
	if version == "" {
		return "of any version"
	}
	return version
}

// chosen are the GPUs that variables choose, nil for all; ok is false where they are
// no list of numbers.
func (c *checker) chosen() (list []int, ok bool) {
	text := c.env["AEGAEON_CUDA_VISIBLE_DEVICES"]
	if text == "" {
		text = c.env["CUDA_VISIBLE_DEVICES"]
	}
	if text == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

func (c *checker) devices() {
	const id, names = "host.visible-devices", "CUDA_VISIBLE_DEVICES and AEGAEON_CUDA_VISIBLE_DEVICES"
	a, b := c.env["CUDA_VISIBLE_DEVICES"], c.env["AEGAEON_CUDA_VISIBLE_DEVICES"]
	list, ok := c.chosen()
	sorted := slices.Sorted(slices.Values(list))
	count := len(c.facts.GPUs)
	if list != nil {
		count = len(list)
	}
	switch {
	case a != "" && b != "" && a != b:
		c.fail(id, "set both to the same list", "%s differ: %s and %s", names, a, b)
	case !ok:
		c.fail(id, "list the numbers of GPUs", "%s is no list of numbers of GPUs", a+b)
	case len(slices.Compact(sorted)) != len(list):
		c.fail(id, "list each GPU once", "a GPU stands in the list twice: %s", a)
	case slices.ContainsFunc(list, func(n int) bool {
		return !slices.ContainsFunc(c.facts.GPUs, func(g schemas.HostGPU) bool { return g.Index == n })
	}):
		c.fail(id, "list GPUs that there are", "a GPU is listed that there is not: %v of %d", list, len(c.facts.GPUs))
	case count < c.need.GPUs:
		c.fail(id, "make more visible, or configure fewer engines", "%d GPUs are visible, the service uses %d", count, c.need.GPUs)
	default:
		c.pass(id, "%d GPUs are visible", count)
	}
}

// graphs checks what saving and loading CUDA graphs needs.
func (c *checker) graphs() {
	f := c.facts
	hook, ops := f.Hook, f.Extensions["foundry.ops"]
	switch {
	case c.env["AEGAEON_FOUNDRY_HOOK_PATH"] == "" && hook == nil:
		c.fail("host.hook", "set it to the absolute path of libcuda_hook.so beside foundry's extension", "AEGAEON_FOUNDRY_HOOK_PATH is not set")
	case hook == nil || (c.env["AEGAEON_FOUNDRY_HOOK_PATH"] != "" && hook.Path != c.env["AEGAEON_FOUNDRY_HOOK_PATH"]):
		c.unknown("host.hook", "the hook "+c.env["AEGAEON_FOUNDRY_HOOK_PATH"]+" was not looked at", "hook")
	case hook.Problem != "":
		c.fail("host.hook", "give the absolute path of libcuda_hook.so", "the hook %s: %s", hook.Path, hook.Problem)
	case ops.Path != "" && filepath.Dir(ops.Path) != filepath.Dir(hook.Path):
		c.fail("host.hook", "use the one of the same build", "the hook %s does not lie beside foundry's extension %s", hook.Path, ops.Path)
	default:
		c.pass("host.hook", "the hook is a library")
	}
	missing := slices.Clone(ops.Missing)
	if hook != nil {
		missing = append(missing, hook.Missing...)
	}
	switch {
	case len(missing) > 0:
		c.fail("host.boost", "install Boost 1.83 or later, and put its folder into LD_LIBRARY_PATH", "%s cannot be found", strings.Join(missing, ", "))
	case ops.Path == "":
		c.unknown("host.boost", "foundry's extension was not found", "packages")
	default:
		c.pass("host.boost", "the libraries that Foundry needs are there")
	}
	c.driverLibrary()
}

func (c *checker) driverLibrary() {
	switch l := c.facts.CUDALibrary; {
	case l == nil || (l.FuncName == nil && l.Problem == ""):
		c.unknown("host.driver-symbol", "the driver's library was not found", "cuda_library")
	case l.Problem != "":
		c.fail("host.driver-symbol", "correct LD_LIBRARY_PATH", "%s: %s", l.Path, l.Problem)
	case !*l.FuncName:
		c.fail("host.driver-symbol", "install the compatibility package of torch's CUDA, and put its folder first in LD_LIBRARY_PATH", "%s does not define cuFuncGetName", l.Path)
	default:
		c.pass("host.driver-symbol", "%s defines cuFuncGetName", l.Path)
	}
}
