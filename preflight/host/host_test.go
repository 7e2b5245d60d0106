package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

var now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func facts(t *testing.T, name string) schemas.HostFacts {
	t.Helper()
	f, err := ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func need() Need {
	return Need{Engine: "aegaeon", Graphs: true, GPUs: 2, Connections: 64, Port: 8000, Recorded: true, Now: now}
}

// ids are those of a severity, sorted.
func ids(list []schemas.Finding, s schemas.Severity) []string {
	var out []string
	for _, f := range list {
		if f.Severity == s {
			out = append(out, f.ID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestRecordedHosts(t *testing.T) {
	for _, c := range []struct {
		file, engine     string
		errors, warnings []string
	}{
		{"good-a100", "aegaeon", nil, nil},
		{"bad-a100", "aegaeon", []string{"host.driver", "host.gpu-busy", "host.shm-stale", "host.vllm"}, []string{"host.clock", "host.governor", "host.memlock"}},
		{"good-npu", "pypto", nil, nil},
	} {
		n := need()
		n.Engine = c.engine
		list := Check("host", facts(t, c.file), n)
		if got := ids(list, "error"); !slices.Equal(got, c.errors) {
			t.Errorf("%s: errors %v, want %v: %+v", c.file, got, c.errors, list)
		}
		if got := ids(list, "warning"); !slices.Equal(got, c.warnings) {
			t.Errorf("%s: warnings %v, want %v", c.file, got, c.warnings)
		}
		if got := ids(list, "unknown"); got != nil {
			t.Errorf("%s: unknown %v", c.file, got)
		}
	}
}

func TestEnginesWithoutRulesAskNothing(t *testing.T) {
	for _, engine := range []string{"emulated", "openai", ""} {
		if list := Check("host", schemas.HostFacts{}, Need{Engine: engine}); len(list) > 0 {
			t.Errorf("%s: %+v", engine, list)
		}
	}
}

func TestNothingKnownIsNoPass(t *testing.T) {
	for _, engine := range []string{"aegaeon", "pypto"} {
		n := need()
		n.Engine = engine
		list := Check("host", schemas.HostFacts{Unknown: map[string]string{"gpus": "nvidia-smi is not installed"}}, n)
		if len(ids(list, "unknown")) == 0 {
			t.Errorf("%s: nothing unknown: %+v", engine, list)
		}
		for _, f := range list {
			if f.Severity == "unknown" && !strings.Contains(f.Remedy, "assay doctor --facts host.json") {
				t.Errorf("%s: %s does not say how facts are recorded: %s", engine, f.ID, f.Remedy)
			}
		}
	}
}

// One thing wrong at a time, on a host that is well otherwise.
func TestEachPitfall(t *testing.T) {
	yes, no := true, false
	few := int64(100)
	set := func(name, value string) func(*schemas.HostFacts) {
		return func(f *schemas.HostFacts) { f.Env[name] = value }
	}
	pkg := func(name, version string) func(*schemas.HostFacts) {
		return func(f *schemas.HostFacts) { f.Packages[name] = version }
	}
	ext := func(name string, l *schemas.HostLibrary) func(*schemas.HostFacts) {
		return func(f *schemas.HostFacts) {
			if delete(f.Extensions, name); l != nil {
				f.Extensions[name] = *l
			}
		}
	}
	const compat, conda = "/usr/local/cuda-12.9/compat", "/opt/conda/envs/aegaeon/lib"
	for name, c := range map[string]struct {
		spoil    func(*schemas.HostFacts)
		id       string
		severity schemas.Severity
	}{
		"no torch":             {pkg("torch", ""), "host.torch", "error"},
		"other torch":          {pkg("torch", "2.6.0+cu129"), "host.torch", "error"},
		"torch without CUDA":   {pkg("torch", "2.11.0"), "host.toolkit", "unknown"},
		"other vLLM":           {pkg("vllm", "0.25.0"), "host.vllm", "error"},
		"no engine":            {pkg("aegaeon", ""), "host.aegaeon", "error"},
		"no Ray":               {pkg("ray", ""), "host.ray-package", "error"},
		"packages unknown":     {func(f *schemas.HostFacts) { f.Packages = nil }, "host.packages", "unknown"},
		"other Python":         {func(f *schemas.HostFacts) { f.Python = "3.12" }, "host.python", "error"},
		"no ops":               {ext("aegaeon.ops", nil), "host.aegaeon-ops", "error"},
		"old ops":              {ext("aegaeon.ops", &schemas.HostLibrary{Path: "/o.so", Older: true}), "host.aegaeon-ops", "warning"},
		"no loader":            {ext("quick_model_loader._rlib", nil), "host.weight-loader", "error"},
		"broken Foundry":       {ext("foundry.ops", &schemas.HostLibrary{Path: "/o.so", Problem: "no library"}), "host.foundry-ops", "error"},
		"no Boost":             {ext("foundry.ops", &schemas.HostLibrary{Path: conda + "/python3.10/site-packages/foundry/ops.so", Missing: []string{"libboost_json.so.1.83.0"}}), "host.boost", "error"},
		"new CUDA, old driver": {pkg("torch", "2.11.0+cu130"), "host.driver", "error"},
		"driver unknown":       {func(f *schemas.HostFacts) { f.DriverVersion = "" }, "host.driver", "unknown"},
		"old GPU":              {func(f *schemas.HostFacts) { f.GPUs[0].Capability = "7.0" }, "host.capability", "error"},
		"capability unknown":   {func(f *schemas.HostFacts) { f.GPUs[0].Capability = "" }, "host.capability", "unknown"},
		"old C library":        {func(f *schemas.HostFacts) { f.Glibc = "2.17" }, "host.distribution", "error"},
		"other toolkit":        {func(f *schemas.HostFacts) { f.Toolkit = "13.0.0" }, "host.toolkit", "error"},
		"no toolkit":           {func(f *schemas.HostFacts) { f.Toolkit = "" }, "host.toolkit", "warning"},
		"no cluster":           {func(f *schemas.HostFacts) { f.RayAddress, f.RayAnswers = "", &no }, "host.ray", "error"},
		"silent cluster":       {func(f *schemas.HostFacts) { f.RayAnswers = &no }, "host.ray", "error"},
		"cluster unknown":      {func(f *schemas.HostFacts) { f.RayAnswers = nil }, "host.ray", "unknown"},
		"variables differ":     {set("CUDA_VISIBLE_DEVICES", "1,0"), "host.visible-devices", "error"},
		"too few GPUs": {func(f *schemas.HostFacts) {
			f.Env["CUDA_VISIBLE_DEVICES"], f.Env["AEGAEON_CUDA_VISIBLE_DEVICES"] = "0", ""
		}, "host.visible-devices", "error"},
		"a GPU twice": {func(f *schemas.HostFacts) {
			f.Env["CUDA_VISIBLE_DEVICES"], f.Env["AEGAEON_CUDA_VISIBLE_DEVICES"] = "0,0", ""
		}, "host.visible-devices", "error"},
		"a GPU that is not": {func(f *schemas.HostFacts) {
			f.Env["CUDA_VISIBLE_DEVICES"], f.Env["AEGAEON_CUDA_VISIBLE_DEVICES"] = "0,7", ""
		}, "host.visible-devices", "error"},
		"memlock unknown":      {func(f *schemas.HostFacts) { f.MemlockBytes = nil }, "host.memlock", "unknown"},
		"few files":            {func(f *schemas.HostFacts) { f.OpenFiles = &few }, "host.open-files", "error"},
		"few ports":            {func(f *schemas.HostFacts) { f.PortFirst, f.PortLast = 60000, 60010 }, "host.port-range", "error"},
		"port in use":          {func(f *schemas.HostFacts) { f.Listening = []int{8000} }, "host.port", "error"},
		"system library first": {set("LD_LIBRARY_PATH", "/usr/lib/x86_64-linux-gnu:"+conda), "host.library-order", "error"},
		"own library nowhere":  {set("LD_LIBRARY_PATH", ""), "host.library-order", "warning"},
		"compat second":        {set("LD_LIBRARY_PATH", conda+":"+compat), "host.compat", "error"},
		"compat of other CUDA": {set("LD_LIBRARY_PATH", "/usr/local/cuda-13.0/compat:"+conda), "host.compat", "error"},
		"compat of some CUDA":  {set("AEGAEON_CUDA_COMPAT_PATH", "/opt/lib"), "host.compat", "unknown"},
		"no hook":              {func(f *schemas.HostFacts) { f.Hook = nil; delete(f.Env, "AEGAEON_FOUNDRY_HOOK_PATH") }, "host.hook", "error"},
		"hook is no library":   {func(f *schemas.HostFacts) { f.Hook.Problem = "it is no shared library" }, "host.hook", "error"},
		"hook of another build": {func(f *schemas.HostFacts) {
			f.Hook.Path = "/opt/h.so"
			f.Env["AEGAEON_FOUNDRY_HOOK_PATH"] = "/opt/h.so"
		}, "host.hook", "error"},
		"hook not recorded":  {set("AEGAEON_FOUNDRY_HOOK_PATH", "/other/h.so"), "host.hook", "unknown"},
		"no symbol":          {func(f *schemas.HostFacts) { f.CUDALibrary.FuncName = &no }, "host.driver-symbol", "error"},
		"no driver library":  {func(f *schemas.HostFacts) { f.CUDALibrary = nil }, "host.driver-symbol", "unknown"},
		"GPUs of two kinds":  {func(f *schemas.HostFacts) { f.GPUs[1].Name = "NVIDIA H100" }, "host.gpu-alike", "warning"},
		"kernels waited for": {set("CUDA_LAUNCH_BLOCKING", "1"), "host.blocking", "warning"},
		"old facts":          {func(f *schemas.HostFacts) { f.RecordedAt = now.AddDate(0, -3, 0) }, "host.recorded", "warning"},
		"facts to come":      {func(f *schemas.HostFacts) { f.RecordedAt = now.AddDate(0, 3, 0) }, "host.recorded", "warning"},
		"all well":           {func(f *schemas.HostFacts) { f.CUDALibrary.FuncName = &yes }, "host.gpus", "pass"},
	} {
		f := facts(t, "good-a100")
		c.spoil(&f)
		list := Check("host", f, need())
		if !slices.ContainsFunc(list, func(f schemas.Finding) bool { return f.ID == c.id && f.Severity == c.severity }) {
			t.Errorf("%s: no %s %s: %+v", name, c.severity, c.id, list)
		}
	}
}

func TestServiceEnvironmentWins(t *testing.T) {
	n := need()
	n.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "0", "AEGAEON_CUDA_VISIBLE_DEVICES": "1"}
	if got := ids(Check("host", facts(t, "good-a100"), n), "error"); !slices.Contains(got, "host.visible-devices") {
		t.Errorf("errors %v", got)
	}
}

func TestRayAddressOfTheCommand(t *testing.T) {
	for ray, want := range map[string]schemas.Severity{"local": "pass", "auto": "error", "": "error", "10.0.0.1:6379": "unknown"} {
		f, n := facts(t, "good-a100"), need()
		none := false
		f.RayAddress, f.RayAnswers, n.Ray = "", &none, ray
		for _, got := range Check("host", f, n) {
			if got.ID == "host.ray" && got.Severity != want {
				t.Errorf("%q: %+v, want %s", ray, got, want)
			}
		}
	}
}

func TestFindingsStandInTheCatalog(t *testing.T) {
	known := map[string]bool{}
	for _, e := range Catalog() {
		known[e.ID] = true
	}
	for _, file := range []string{"good-a100", "bad-a100"} {
		for _, f := range Check("host", facts(t, file), need()) {
			if !known[f.ID] {
				t.Errorf("%s stands in no catalog", f.ID)
			}
		}
	}
}

// A tree of files as a host has them, and answers of its tools.
func TestCollect(t *testing.T) {
	root := t.TempDir()
	site := filepath.Join(root, "env/lib/python3.10/site-packages")
	for path, text := range map[string]string{
		"proc/meminfo":                          "MemTotal: 4 kB\nMemAvailable:       2048 kB\n",
		"proc/self/limits":                      "Max open files            1024                 4096                 files\nMax locked memory         unlimited            unlimited            bytes\n",
		"proc/net/tcp":                          "  sl  local_address\n 0: 0100007F:1F90 00000000:0000 0A\n 1: 0100007F:1F91 00000000:0000 01\n",
		"proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
		"etc/os-release":                        "ID=ubuntu\nVERSION_ID=\"22.04\"\n",
		"dev/shm/aegaeon_cpu_cache":             "left over",
		"env/lib/python3.10/site-packages/torch-2.11.0.dist-info/METADATA": "Name: torch\nVersion: 2.11.0+cu129\n\nName: no\n",
		"env/lib/python3.10/site-packages/other-1.dist-info/METADATA":      "Name: other\nVersion: 1\n",
		"env/lib/python3.10/site-packages/aegaeon/ops.cpython-310.so":      "no library",
		"usr/local/cuda/version.json":                                      `{"cuda":{"version":"12.9.1"}}`,
	} {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"RAY_ADDRESS": "ray://user:pass@host:1", "OPENAI_API_KEY": "sk-verysecretindeed", "PYPTO_CACHE_DIR": "https://me:pw@host/x", "CUDA_VISIBLE_DEVICES": "0",
		"AEGAEON_FOUNDRY_HOOK_PATH": "relative.so"}
	f := Collect(context.Background(), Sources{Root: root, Env: func(n string) string { return env[n] }, Now: now, DiskDir: root, Programs: []string{"relative/bin/x", "/nowhere/bin/x", filepath.Join(root, "env/bin/aegaeon")}, Run: func(_ context.Context, argv []string) ([]byte, error) {
		if argv[0] == "nvidia-smi" {
			return []byte("0, NVIDIA A100-PCIE-40GB, 40960, 12, 535.247.01, 8.0, 210, 1410\n"), nil
		}
		return nil, errors.New("npu-smi is not installed")
	}})
	switch {
	case *f.MemAvailableBytes != 2048*1024, *f.MemlockBytes != -1, *f.OpenFiles != 1024, !slices.Equal(f.Listening, []int{8080}), f.PortLast != 60999:
		t.Errorf("limits: %+v", f)
	case f.Distribution != "ubuntu", f.Version != "22.04", f.Toolkit != "12.9.1", f.Python != "3.10":
		t.Errorf("system: %+v", f)
	case len(f.Packages) != 1, f.Packages["torch"] != "2.11.0+cu129", f.Extensions["aegaeon.ops"].Problem != "it is no shared library":
		t.Errorf("%s: %+v %+v", site, f.Packages, f.Extensions)
	case len(f.GPUs) != 1, f.DriverVersion != "535.247.01", f.GPUs[0].MemoryBytes != 40960<<20, f.Unknown["npus"] == "":
		t.Errorf("devices: %+v", f)
	case len(f.ShmFiles) != 1, f.ShmDir != "/dev/shm", f.Hook.Problem != "the path is not absolute":
		t.Errorf("files: %+v", f)
	}
	b, err := schemas.Encode(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"verysecret", "pass", "pw@"} {
		if strings.Contains(string(b), text) {
			t.Errorf("%q is in the facts: %s", text, b)
		}
	}
	if _, err := Decode("facts", b); err != nil {
		t.Error(err)
	}
}

func TestLibraryOfThisMachine(t *testing.T) {
	c := &collector{Sources: Sources{Env: func(string) string { return "" }}}
	path := c.find("libc.so.6")
	if path == "" {
		t.Skip("no C library is in a usual folder here")
	}
	if l := c.library(path); l.Problem != "" {
		t.Errorf("%+v", l)
	}
	if v := c.glibc(); compare(v, "2.17") < 0 {
		t.Errorf("C library %q", v)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "No devices were found\n", "0, a, b, c, d, e, f, g\n", "-1, A, 1, 1, 5, 8, 1, 1\n", strings.Repeat("x", maxText+1)} {
		if _, _, err := ParseNvidia([]byte(text)); err == nil {
			t.Errorf("nvidia-smi %.20q is taken", text)
		}
	}
	if _, err := ParseNPU([]byte("NPU ID\n")); err == nil {
		t.Error("npu-smi without a chip is taken")
	}
	if _, _, err := ParseMetadata([]byte("Name: x\n\nVersion: 1\n")); err == nil {
		t.Error("a version of the description is taken")
	}
	if _, err := Decode("f", []byte(`{"schema":"assay/host-facts/v1","cpus":1,"more":1}`)); err == nil {
		t.Error("facts with a key that there is not are taken")
	}
}

func FuzzParseNvidia(f *testing.F) {
	f.Add([]byte("0, NVIDIA A100-PCIE-40GB, 40960, 12, 535.247.01, 8.0, 210, 1410\n"))
	f.Add([]byte("0, \"a\nb\", [N/A], 1, 2, 3, 4, 5\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		gpus, driver, err := ParseNvidia(b)
		if err == nil && len(gpus) == 0 || len(gpus) > maxDevices {
			t.Fatalf("%d GPUs", len(gpus))
		}
		compare(driver, "580.95.05")
	})
}

func FuzzParseNPU(f *testing.F) {
	f.Add([]byte("\tNPU ID  Chip ID  Chip Logic ID  Chip Name\n\t0  0  0  Ascend 910B\n\t0  1  -  Mcu\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if npus, err := ParseNPU(b); err == nil && len(npus) == 0 || len(npus) > maxDevices {
			t.Fatalf("%d NPUs", len(npus))
		}
	})
}

func FuzzParseMetadata(f *testing.F) {
	f.Add([]byte("Metadata-Version: 2.1\nName: Flash_Infer.Python\r\nVersion: 2.11.0+cu129\n\ntext"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, version, err := ParseMetadata(b)
		if err == nil && (name == "" || version == "" || strings.ContainsAny(name, "_.\n")) {
			t.Fatalf("%q %q", name, version)
		}
		torchCUDA(version)
	})
}
