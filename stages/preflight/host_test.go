package preflight

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/preflight/host"
	"assay/schemas"
)

func recordedFacts(t *testing.T, name string) *schemas.HostFacts {
	t.Helper()
	f, err := host.ReadFile(filepath.Join("../../preflight/host/testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	f.RecordedAt = time.Now() // the only thing of a fixture that ages
	return &f
}

// started is a stage whose experiment starts a real engine from a folder elsewhere.
func started(t *testing.T, engine string) *stage {
	t.Helper()
	exp := experiment()
	exp.Model = map[string]schemas.Model{"q": {Name: "q", Checkpoint: "/srv/models/q", Fingerprint: schemas.Digest("sha256:" + strings.Repeat("a", 64))}}
	exp.Service["real"] = schemas.Service{Engine: engine, Config: map[string]any{"command": []any{"aegaeon-not-here", "serve"}, "port": "6380", "aegaeon_config": "a.yaml"}}
	if engine == "pypto" {
		delete(exp.Service["real"].Config, "aegaeon_config")
	}
	s := newStage(t, exp, map[string]any{"disk": "1TiB", "ports": []any{"6381"}})
	s.file(t, "w.csv", good)
	s.file(t, "a.yaml", "server: {cpu_num_slabs: 8, model_cache_size_gb: 20, worker_num_cpus: 4}\nmodels: [{name: q, path: /srv/models/q, max_model_len: 2048}]\n")
	return s
}

func TestRecordedHostIsJudgedInPlaceOfThisOne(t *testing.T) {
	for _, c := range []struct {
		facts string
		want  []string
	}{
		{"good-a100", nil},
		{"bad-a100", []string{"host.driver", "host.gpu-busy", "host.shm-stale", "host.vllm"}},
	} {
		s := started(t, "aegaeon")
		f := recordedFacts(t, c.facts)
		f.Folders = []schemas.HostFolder{{Model: "q", Path: "/srv/models/q", Fingerprint: schemas.Digest("sha256:" + strings.Repeat("a", 64)),
			Files: []schemas.HostFile{{Name: "config.json", Bytes: 2}, {Name: "model.safetensors", Bytes: 1 << 30}}}}
		s.task.Host = f
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		var got []string
		for _, f := range s.output(t) {
			about := strings.HasPrefix(f.ID, "host.") || strings.HasPrefix(f.Subject, "service real") || f.Subject == "store" || strings.HasPrefix(f.Subject, "port")
			if about && (f.Severity == "error" || f.Severity == "unknown") {
				got = append(got, f.ID)
			}
			if f.Severity == "pass" && (strings.HasPrefix(f.ID, "program.") && f.Subject == "service real: program" || f.ID == "port.free") {
				t.Errorf("%s: this machine was asked: %+v", c.facts, f)
			}
		}
		slices.Sort(got)
		if !slices.Equal(slices.Compact(got), c.want) {
			t.Errorf("%s: %v, want %v", c.facts, got, c.want)
		}
	}
}

func TestRecordedFolderAndPin(t *testing.T) {
	s := started(t, "aegaeon")
	f := recordedFacts(t, "good-a100")
	f.Folders = []schemas.HostFolder{{Model: "q", Path: "/srv/models/q", Fingerprint: schemas.Digest("sha256:" + strings.Repeat("b", 64)), Files: []schemas.HostFile{{Name: "model.safetensors"}}}}
	f.Listening, f.DiskFreeBytes = []int{6381}, nil
	s.task.Host = f
	_ = run(context.Background(), s.task) // what it refuses stands in the output
	list := s.output(t)
	for _, want := range []string{"model q: checkpoint: host.model", "model q: checkpoint: checkpoint.fingerprint", "port 6381: host.port"} {
		if !has(verdicts(list, "error"), want) {
			t.Errorf("no error %q: %+v", want, list)
		}
	}
	if !has(verdicts(list, "unknown"), "store: disk.room") {
		t.Errorf("room is known: %+v", list)
	}
}

func TestNoFactsOfAHostWithoutDevices(t *testing.T) {
	for engine, id := range map[string]string{"aegaeon": "host.gpus", "pypto": "host.npus"} {
		s := started(t, engine)
		_ = run(context.Background(), s.task) // what it refuses stands in the output
		i := slices.IndexFunc(s.output(t), func(f schemas.Finding) bool { return f.ID == id })
		if i < 0 {
			t.Fatalf("%s: no %s: %+v", engine, id, s.output(t))
		}
		if f := s.output(t)[i]; f.Severity == "unknown" && !strings.Contains(f.Remedy, "assay doctor --facts host.json") {
			t.Errorf("%s: %+v", engine, f)
		}
	}
}
