package host

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The versions that the engine is written for.
const (
	wantTorch, wantVLLM, wantPython = "2.11.0", "0.26.0", "3.10"
	reinstall                       = "make the environment anew as the engine's guide says"
)

func (c *checker) packages() {
	f := c.facts
	if f.Packages == nil {
		c.unknown("host.packages", "what is installed is not known", "packages")
		return
	}
	for _, p := range []struct{ id, name, want string }{{"host.torch", "torch", wantTorch}, {"host.vllm", "vllm", wantVLLM}, {"host.aegaeon", "aegaeon", ""}, {"host.ray-package", "ray", ""}} {
		switch have := f.Packages[p.name]; {
		case have == "":
			c.fail(p.id, reinstall, "%s is not installed in %s", p.name, f.Prefix)
		case p.want != "" && strings.Split(have, "+")[0] != p.want:
			c.fail(p.id, "install "+p.name+" "+p.want, "%s is %s: the engine is written for %s", p.name, have, p.want)
		default:
			c.pass(p.id, "%s %s", p.name, have)
		}
	}
	switch {
	case f.Python == "":
		c.unknown("host.python", "the version of Python is not known", "packages")
	case compare(f.Python, wantPython) != 0:
		c.fail("host.python", "make the environment with Python "+wantPython, "Python is %s: the engine is built for %s", f.Python, wantPython)
	default:
		c.pass("host.python", "Python %s", f.Python)
	}
	c.toolkit()
	c.order()
	c.compat()
}

func (c *checker) toolkit() {
	cuda, have := c.cuda(), c.facts.Toolkit
	switch {
	case cuda == "":
		c.unknown("host.toolkit", "the CUDA version of torch is not known: its version does not end in +cuNNN", "packages")
	case have == "":
		c.warn("host.toolkit", "record its version where extensions are built", "no CUDA toolkit was found: extensions were built elsewhere")
	case compare(strings.Join(strings.SplitN(have, ".", 3)[:2], "."), cuda) != 0:
		c.fail("host.toolkit", "use the toolkit of CUDA "+cuda, "the CUDA toolkit is %s, torch was built with %s", have, cuda)
	default:
		c.pass("host.toolkit", "the CUDA toolkit %s is that of torch", have)
	}
}

func (c *checker) extensions() {
	if c.facts.Extensions == nil {
		return // which is said of packages
	}
	wanted := []struct{ id, name string }{{"host.aegaeon-ops", "aegaeon.ops"}, {"host.weight-loader", "quick_model_loader._rlib"}}
	if c.need.Graphs {
		wanted = append(wanted, struct{ id, name string }{"host.foundry-ops", "foundry.ops"})
	}
	for _, w := range wanted {
		switch l, ok := c.facts.Extensions[w.name]; {
		case !ok:
			c.fail(w.id, "build it in this environment", "the extension %s is not there", w.name)
		case l.Problem != "":
			c.fail(w.id, "build it again", "%s: %s", l.Path, l.Problem)
		case l.Older:
			c.warn(w.id, "build it again", "%s is older than the torch that is installed: it may have been built against another", l.Path)
		default:
			c.pass(w.id, "%s is there", w.name)
		}
	}
}

// isCompat are folders of a driver's forward compatibility libraries.
func isCompat(dir string) bool { return filepath.Base(dir) == "compat" }

// order checks that the environment's C++ library is found before the system's.
func (c *checker) order() {
	conda, path := c.env["CONDA_PREFIX"], strings.Split(c.env["LD_LIBRARY_PATH"], ":")
	for i := range path {
		path[i] = filepath.Clean(path[i])
	}
	if own := filepath.Join(c.facts.Prefix, "lib"); c.facts.Prefix != "" && slices.Contains(path, own) {
		conda = c.facts.Prefix // the service's, whatever shell this is
	}
	if conda == "" {
		return
	}
	own := slices.Index(path, filepath.Join(conda, "lib"))
	system := slices.IndexFunc(path, func(d string) bool { return strings.HasPrefix(d, "/usr/lib") || strings.HasPrefix(d, "/lib") })
	compat := slices.IndexFunc(path, isCompat)
	switch {
	case own < 0:
		c.warn("host.library-order", "put "+conda+"/lib into LD_LIBRARY_PATH, after a compat folder", "LD_LIBRARY_PATH does not name the environment's libraries: the system's C++ library may be found")
	case system >= 0 && system < own:
		c.fail("host.library-order", "put "+conda+"/lib before it", "LD_LIBRARY_PATH names %s before the environment's libraries", path[system])
	case compat > own:
		c.fail("host.library-order", "put it first", "LD_LIBRARY_PATH names %s after the environment's libraries", path[compat])
	default:
		c.pass("host.library-order", "the environment's libraries are found first")
	}
}

// cudaDir is a folder of a CUDA version.
var cudaDir = regexp.MustCompile(`cuda-(\d+\.\d+)`)

func (c *checker) compat() {
	dirs := []string{c.env["AEGAEON_CUDA_COMPAT_PATH"]}
	for i, dir := range strings.Split(c.env["LD_LIBRARY_PATH"], ":") {
		if isCompat(filepath.Clean(dir)) {
			dirs = append(dirs, dir)
			if i > 0 {
				c.fail("host.compat", "put it first in LD_LIBRARY_PATH", "%s is not the first folder: the driver's own library is found before it", dir)
			}
		}
	}
	cuda, right := c.cuda(), map[string]bool{}
	for _, dir := range dirs {
		m := cudaDir.FindStringSubmatch(dir)
		switch {
		case dir == "" || right[dir]:
		case m == nil || cuda == "":
			c.add("host.compat", "unknown", "name the folder cuda-VERSION/compat", "the CUDA version of the compatibility library in %s is not known", dir)
		case m[1] != cuda:
			c.fail("host.compat", "use the one of CUDA "+cuda, "the compatibility library in %s is of CUDA %s, torch of %s", dir, m[1], cuda)
		default:
			right[dir] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(right)) {
		c.pass("host.compat", "%s is of torch's CUDA", dir)
	}
}
