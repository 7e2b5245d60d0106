package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"assay/schemas"
)

func TestParseSMIRows(t *testing.T) {
	var rows []GPU
	var bad []string
	w := &lineWriter{line: func(b []byte) {
		g, err := ParseSMIRow(b)
		switch {
		case err == nil:
			rows = append(rows, g)
		case !errors.Is(err, errSMIHeader):
			bad = append(bad, err.Error())
		}
	}}
	for _, piece := range strings.SplitAfter(string(fixture(t, "nvidia-smi.csv")), "1") { // lines come in pieces
		fmt.Fprint(w, piece)
	}
	if len(rows) != 4 || len(bad) != 3 {
		t.Fatalf("%d rows, bad %q", len(rows), bad)
	}
	a, b := rows[0], rows[1]
	if a.Index != 0 || *a.PowerW != 65.32 || *a.UseRatio != 0.35 || *a.MemoryBytes != 40536*(1<<20) || *a.SMClockMHz != 1980 || *a.TempC != 41 || a.Name != "NVIDIA H200, 141 GB" {
		t.Errorf("%+v", a)
	}
	if b.PowerW != nil || b.UseRatio != nil || b.MemoryBytes == nil {
		t.Errorf("%+v", b)
	}
	for i, want := range []string{"columns", "is not in \"W\"", "is not a number"} {
		if !strings.Contains(bad[i], want) {
			t.Errorf("%q, want %q", bad[i], want)
		}
	}
}

func FuzzParseSMIRow(f *testing.F) {
	for _, line := range strings.Split(string(fixture(f, "nvidia-smi.csv")), "\n") {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		g, err := ParseSMIRow(line)
		if err == nil && (g.Index < 0 || g.PowerW != nil && *g.PowerW != *g.PowerW) {
			t.Errorf("%+v", g)
		}
	})
}

// program puts a shell script called nvidia-smi first in PATH.
func program(t *testing.T, script string) []string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, smiProgram), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	path := dir + ":" + os.Getenv("PATH")
	t.Setenv("PATH", path)
	return []string{"PATH=" + path}
}

const smiRow = `echo "0, GPU-a, 2026/11/30 20:00:00.000, 100.00 W, 50 %, 1024 MiB, 1980 MHz, 2619 MHz, 40, H200"`

func TestNvidiaSMI(t *testing.T) {
	env := program(t, `echo "$@" >&2; echo "index, uuid, timestamp, power.draw [W]"; while :; do `+smiRow+`; sleep 0.1; done`)
	cfg := quiet()
	cfg.GPU = smiProgram
	cfg.GPUInterval = 600 * time.Millisecond // rows come more often; a gap of twice this leaves energy undefined
	opts := Options{Config: cfg, URL: "http://127.0.0.1:1", Dir: t.TempDir(), Run: runChild, Env: env}
	seen, findings, err := observe(t, opts, until(t, hasLines(opts.Dir, GPUFile, 6)))
	if err != nil || len(findings) != 0 {
		t.Fatalf("%v, %v", err, findings)
	}
	p, e := find(seen.Series, "gpu_power_w"), seen.Values["energy_j"].Value
	if p.N < 2 || *p.Mean != 100 || p.Subject != "gpu 0" || *find(seen.Series, "gpu_use_ratio").Max != 0.5 {
		t.Errorf("%+v", p)
	}
	want := float64(seen.ToNs) / 1e9 * 100 // constant power over the whole time
	if e == nil || *e < want*0.999 || *e > want*1.001 {
		t.Errorf("energy %v, want %v: %+v", e, want, seen.Values["energy_j"])
	}
	Check(&seen, schemas.Counts{OK: 2, OutputTokens: 100}, "s")
	if v := seen.Values["j_per_output_token"].Value; v == nil || *v != *e/100 {
		t.Errorf("per token: %+v", seen.Values)
	}
	if rows := lines(t, opts.Dir, GPUFile); len(rows) < 5 {
		t.Errorf("%d lines", len(rows))
	}
}

func TestNvidiaSMIThatFails(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"fails", `echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver." ; exit 9`, "exit code 9"},
		{"no devices", `echo "No devices were found"; exit 6`, "No devices"},
		{"dies later", smiRow + `; sleep 0.1; exit 15`, "exit code 15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := program(t, c.script)
			var over atomic.Bool
			run := func(ctx context.Context, argv, env []string, stdout, stderr io.Writer) (int, error) {
				defer over.Store(true)
				return runChild(ctx, argv, env, stdout, stderr)
			}
			load := until(t, over.Load)
			cfg := quiet()
			cfg.GPU = smiProgram
			seen, findings, err := observe(t, Options{Config: cfg, URL: "http://127.0.0.1:1", Run: run, Env: env}, load)
			st := sourceOf(t, seen, "gpu")
			if err != nil || !strings.Contains(st.Unknown, c.want) || st.Unknown == "" || len(findings) != 1 {
				t.Errorf("%v, %+v, %v", err, st, findings)
			}
			if v := seen.Values["energy_j"]; v.Value != nil {
				t.Errorf("energy from nothing: %v", *v.Value)
			}
		})
	}
	t.Setenv("PATH", t.TempDir())
	cfg := quiet()
	cfg.GPU = smiProgram
	seen, _, err := observe(t, Options{Config: cfg, URL: "http://127.0.0.1:1", Run: runChild}, nothing)
	if st := sourceOf(t, seen, "gpu"); err != nil || st.Status != schemas.ObservedUnknown || !strings.Contains(st.Unknown, "not in PATH") {
		t.Errorf("%v, %+v", err, st)
	}
}

func TestGPUsByTheService(t *testing.T) {
	var n atomic.Int64
	url := service(t, map[string]http.HandlerFunc{"/v1/aegaeon/gpu-power": func(w http.ResponseWriter, _ *http.Request) {
		power := "80.5"
		if n.Add(1) == 3 {
			power = "null" // one look without
		}
		fmt.Fprintf(w, `{"gpus":[{"index":0,"timestamp":1764532800.5,"power_w":70,"sm_clock_mhz":1200,"mem_clock_mhz":null,"utilization_gpu_pct":20},{"index":1,"power_w":%s,"utilization_gpu_pct":null}]}`, power)
	}, "/empty": text(`{"gpus":[]}`), "/wrong": text(`{"gpus":[{"power_w":1}]}`)})
	cfg := quiet()
	cfg.GPU = "service"
	cfg.GPUInterval = 400 * time.Millisecond
	seen, _, err := observe(t, Options{Config: cfg, URL: url}, until(t, func() bool { return n.Load() >= 4 }))
	if err != nil || sourceOf(t, seen, "gpu").Looks < 4 {
		t.Fatalf("%v, %+v", err, seen.Sources)
	}
	var told, untold schemas.ObservedSeries
	for _, s := range seen.Series {
		if s.Name == "gpu_energy_j" && s.Subject == "gpu 0" {
			told = s
		} else if s.Name == "gpu_energy_j" {
			untold = s
		}
	}
	if told.Delta == nil || untold.Delta != nil || untold.Unknown == "" || seen.Values["energy_j"].Value != nil {
		t.Errorf("%+v, %+v, %+v", told, untold, seen.Values["energy_j"])
	}
	for _, path := range []string{"/empty", "/wrong"} {
		cfg.GPUPath = path
		seen, _, err := observe(t, Options{Config: cfg, URL: url}, nothing)
		if st := sourceOf(t, seen, "gpu"); err != nil || st.Status != schemas.ObservedUnknown {
			t.Errorf("%s: %v, %+v", path, err, st)
		}
	}
}
