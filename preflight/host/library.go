package host

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// modules are the compiled ones that are looked for, by the name they are imported as.
var modules = map[string]string{"aegaeon.ops": "aegaeon/ops*.so", "quick_model_loader._rlib": "quick_model_loader/_rlib*.so", "foundry.ops": "foundry/ops*.so"}

// packages are those whose versions are recorded.
var packages = []string{"torch", "vllm", "ray", "aegaeon", "foundry", "transformers", "triton", "numpy", "quick-model-loader", "flashinfer-python", "pypto", "pypto-serving", "torch-npu"}

// python reads the metadata of the environment that the service's program lies in, or
// that VIRTUAL_ENV or CONDA_PREFIX names, without running anything of it.
func (c *collector) python() {
	f := &c.facts
	prefixes := []string{}
	for _, program := range c.Programs { // of the service itself, whatever shell this is
		if filepath.IsAbs(program) && filepath.Base(filepath.Dir(program)) == "bin" {
			prefixes = append(prefixes, filepath.Dir(filepath.Dir(program)))
		}
	}
	for _, prefix := range append(prefixes, c.Env("VIRTUAL_ENV"), c.Env("CONDA_PREFIX")) {
		sites, _ := filepath.Glob(filepath.Join(prefix, "lib", "python3*", "site-packages"))
		if prefix == "" || len(sites) == 0 {
			continue
		}
		f.Prefix, f.Packages, f.Extensions = prefix, map[string]string{}, map[string]schemas.HostLibrary{}
		f.Python = strings.TrimPrefix(filepath.Base(filepath.Dir(sites[0])), "python")
		torch := c.installed(sites[0])
		c.modules(sites[0], torch)
		break
	}
	if f.Prefix == "" {
		c.unknown("packages", "the service's program lies in no Python environment, and neither VIRTUAL_ENV nor CONDA_PREFIX names one")
	}
	for _, path := range []string{c.Root + "/usr/local/cuda/version.json", filepath.Join(f.Prefix, "version.json")} {
		if b, err := readFile(path); err == nil {
			f.Toolkit = toolkit(b)
			break
		}
	}
}

// installed records versions and returns when torch was installed.
func (c *collector) installed(site string) (torch time.Time) {
	files, _ := filepath.Glob(filepath.Join(site, "*.dist-info", "METADATA"))
	for _, path := range files {
		b, err := readFile(path)
		if err != nil {
			continue
		}
		name, version, err := ParseMetadata(b)
		if err != nil || !slices.Contains(packages, name) {
			continue
		}
		c.facts.Packages[name] = version
		if info, err := os.Stat(path); err == nil && name == "torch" {
			torch = info.ModTime()
		}
	}
	return torch
}

func (c *collector) modules(site string, torch time.Time) {
	for name, pattern := range modules {
		files, _ := filepath.Glob(filepath.Join(site, pattern))
		if len(files) == 0 {
			continue
		}
		l := c.library(files[0])
		if info, err := os.Stat(files[0]); err == nil {
			l.Older = info.ModTime().Before(torch)
		}
		c.facts.Extensions[name] = l
	}
}

// folders are where a library is looked for, in order.
func (c *collector) folders() []string {
	out := slices.DeleteFunc(strings.Split(c.Env("LD_LIBRARY_PATH"), ":"), func(s string) bool { return s == "" })
	if p := c.facts.Prefix; p != "" {
		out = append(out, filepath.Join(p, "lib"))
		sites, _ := filepath.Glob(filepath.Join(p, "lib", "python3*", "site-packages", "torch", "lib"))
		out = append(out, sites...)
	}
	for _, dir := range []string{"/usr/local/cuda/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/local/lib"} {
		out = append(out, c.Root+dir)
	}
	return out
}

func (c *collector) find(name string) string {
	for _, dir := range c.folders() {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// library looks at a file as the loader would, without loading it.
func (c *collector) library(path string) schemas.HostLibrary {
	l := schemas.HostLibrary{Path: path}
	if !filepath.IsAbs(path) {
		l.Problem = "the path is not absolute"
		return l
	}
	f, err := durable.OpenRegular(path)
	if err != nil {
		l.Problem = "it is not there, or is no regular file that can be read"
		return l
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil || e.Type != elf.ET_DYN {
		l.Problem = "it is no shared library"
		return l
	}
	needed, err := e.ImportedLibraries()
	if err != nil {
		l.Problem = "what it needs cannot be read: " + err.Error()
		return l
	}
	for _, name := range needed {
		if strings.HasPrefix(name, "libboost_") && c.find(name) == "" {
			l.Missing = append(l.Missing, name)
		}
	}
	if strings.HasPrefix(filepath.Base(path), "libcuda.so") {
		l.FuncName = defines(e, "cuFuncGetName")
	}
	return l
}

// defines is nil where the symbols cannot be read.
func defines(e *elf.File, name string) *bool {
	symbols, err := e.DynamicSymbols()
	if err != nil {
		return nil
	}
	has := slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF })
	return &has
}

func (c *collector) libraries() {
	if hook := c.Env("AEGAEON_FOUNDRY_HOOK_PATH"); hook != "" {
		l := c.library(hook)
		c.facts.Hook = &l
	}
	if path := c.find("libcuda.so.1"); path != "" {
		l := c.library(path)
		c.facts.CUDALibrary = &l
	} else {
		c.unknown("cuda_library", "libcuda.so.1 is in no folder of libraries")
	}
}
