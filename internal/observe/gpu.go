package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"assay/internal/metrics"
	"assay/schemas"
)

// GPUFile holds the looks at GPUs.
const GPUFile = "gpu.jsonl"

const (
	smiProgram  = "nvidia-smi"
	maxGPUBytes = 1 << 20
	maxGPUs     = 1024
)

// RunProgram runs a program and its whole process tree to the end. When ctx ends,
// the tree is stopped.
type RunProgram func(ctx context.Context, argv, env []string, stdout, stderr io.Writer) (int, error)

// GPU is one look at one device. What it does not tell is nil.
type GPU struct {
	Index       int      `json:"index"`
	Name        string   `json:"name,omitempty"`
	UUID        string   `json:"uuid,omitempty"`
	Timestamp   string   `json:"timestamp,omitempty"` // as told
	PowerW      *float64 `json:"power_w"`
	UseRatio    *float64 `json:"use_ratio"`
	MemoryBytes *float64 `json:"memory_used_bytes,omitempty"`
	SMClockMHz  *float64 `json:"sm_clock_mhz"`
	MemClockMHz *float64 `json:"mem_clock_mhz"`
	TempC       *float64 `json:"temperature_c,omitempty"`
}

// ParseGPUPower reads what a service answers at its gpu-power path. An empty list
// is an error: it means that its host's tool told nothing.
func ParseGPUPower(b []byte) ([]GPU, error) {
	var doc struct {
		GPUs []struct {
			Index     *int            `json:"index"`
			Timestamp json.RawMessage `json:"timestamp"`
			PowerW    *float64        `json:"power_w"`
			SM        *float64        `json:"sm_clock_mhz"`
			Mem       *float64        `json:"mem_clock_mhz"`
			Use       *float64        `json:"utilization_gpu_pct"`
		} `json:"gpus"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("not a list of GPUs: %w", schemas.PlainJSON(err))
	}
	if len(doc.GPUs) == 0 {
		return nil, errors.New("the service lists no GPU: nvidia-smi failed or is missing on its host")
	}
	if len(doc.GPUs) > maxGPUs {
		return nil, fmt.Errorf("%d GPUs, more than %d", len(doc.GPUs), maxGPUs)
	}
	var out []GPU
	for i, g := range doc.GPUs {
		if g.Index == nil {
			return nil, fmt.Errorf("GPU %d of the list has no index", i)
		}
		out = append(out, GPU{Index: *g.Index, Timestamp: strings.Trim(string(g.Timestamp), `"`), PowerW: g.PowerW, SMClockMHz: g.SM, MemClockMHz: g.Mem, UseRatio: ofPercent(g.Use)})
	}
	return out, nil
}

func ofPercent(v *float64) *float64 {
	if v == nil {
		return nil
	}
	x := *v / 100
	return &x
}

// gpus follows devices, by whichever source.
type gpus struct {
	dir      string
	hide     func(string) string
	st       *schemas.ObservedSource
	ep       *endpoint  // by the service, else
	run      RunProgram // by a program
	env      []string
	interval time.Duration

	mu      sync.Mutex // nvidia-smi's rows come on a goroutine of their own
	out     *sink
	when    when
	devices map[int]*device
	order   []int
	rows    int64
	bad     int64
	badText string
	arrived chan struct{} // closed at the first row
	cancel  context.CancelFunc
	done    chan struct{}
	ended   string // why the program ended early
}

type device struct {
	power, use, memory stats
	name               string
	samples            []metrics.PowerSample // At is wall clock: ns of Unix time with the monotonic reading taken off
	at                 []time.Time
	bad                string
}

func (g *gpus) before(ctx context.Context) error {
	g.devices, g.arrived = map[int]*device{}, make(chan struct{})
	var first []GPU
	if g.ep != nil {
		var err error
		if first, err = g.ask(ctx); err != nil {
			return err
		}
	} else if _, err := exec.LookPath(smiProgram); err != nil || g.run == nil {
		return fmt.Errorf("%s is not in PATH", smiProgram)
	}
	out, err := newSink(g.dir, GPUFile, map[string]any{"schema": "assay/observed-gpu/v1", "from": g.st.From, "interval_s": g.st.IntervalS})
	if err != nil {
		return &writeError{err}
	}
	g.out = out
	g.st.Files = append(g.st.Files, GPUFile)
	if g.ep != nil {
		g.take(time.Now(), first)
		return nil
	}
	return g.start(ctx)
}

func (g *gpus) ask(ctx context.Context) ([]GPU, error) {
	body, err := g.ep.get(ctx, g.st.From, maxGPUBytes)
	if err != nil {
		return nil, err
	}
	return ParseGPUPower(body)
}

func (g *gpus) look(ctx context.Context, w when) error {
	g.mu.Lock()
	g.when = w
	g.mu.Unlock()
	if g.ep == nil {
		return nil // its rows come by themselves
	}
	at := time.Now()
	list, err := g.ask(ctx)
	if err != nil {
		_ = g.out.add(at, member(nil, "error", g.hide(err.Error())))
		return err
	}
	return g.take(at, list)
}

// take keeps one look at some devices.
func (g *gpus) take(at time.Time, list []GPU) error {
	for i := range list {
		list[i].Name, list[i].UUID, list[i].Timestamp = g.hide(list[i].Name), g.hide(list[i].UUID), g.hide(list[i].Timestamp)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.when == beforeAll && g.out.begun(at) {
		g.when = meanwhile // a program's rows come by a clock of its own
	}
	for _, x := range list {
		d := g.devices[x.Index]
		if d == nil {
			if len(g.devices) == maxGPUs {
				continue
			}
			d = &device{name: x.Name}
			g.devices[x.Index] = d
			g.order = append(g.order, x.Index)
		}
		g.sum(d, at, x)
	}
	return g.out.add(at, append([]byte(`"gpus":`), b...))
}

func (g *gpus) sum(d *device, at time.Time, x GPU) {
	for _, s := range []struct {
		to *stats
		v  *float64
	}{{&d.power, x.PowerW}, {&d.use, x.UseRatio}, {&d.memory, x.MemoryBytes}} {
		if s.v != nil {
			s.to.take(g.when, *s.v)
		}
	}
	if x.PowerW == nil {
		d.bad = "it did not always tell its power"
		return
	}
	d.samples = append(d.samples, metrics.PowerSample{Watts: *x.PowerW})
	d.at = append(d.at, at)
}

// start runs nvidia-smi in its own loop and waits for its first row.
func (g *gpus) start(ctx context.Context) error {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	g.cancel, g.done = cancel, make(chan struct{})
	stdout := &lineWriter{line: g.row}
	var stderr bytes.Buffer
	go func() {
		defer close(g.done)
		code, err := g.run(run, SMICommand(g.interval), g.env, stdout, &limited{b: &stderr, n: 4096})
		if run.Err() != nil {
			return
		}
		text := fmt.Sprintf("%s ended by itself with exit code %d", smiProgram, code)
		if err != nil {
			text = smiProgram + ": " + err.Error()
		}
		if line := firstLine(append(stdout.buf, stderr.Bytes()...), g.hide); line != "" {
			text += ": " + line
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.rows == 0 && g.badText != "" {
			text += ": " + g.badText
		}
		g.ended = g.hide(text)
	}()
	limit := time.NewTimer(max(10*time.Second, 3*g.interval))
	defer limit.Stop()
	select {
	case <-g.arrived:
		return nil
	case <-g.done:
		g.mu.Lock()
		defer g.mu.Unlock()
		return errors.New(g.ended)
	case <-limit.C:
		return fmt.Errorf("%s gave no row in time", smiProgram)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// row takes a line of nvidia-smi.
func (g *gpus) row(line []byte) {
	at := time.Now()
	x, err := ParseSMIRow(line)
	if errors.Is(err, errSMIHeader) {
		return
	}
	g.mu.Lock()
	first := g.rows == 0 && err == nil
	if err != nil {
		g.bad++
		g.badText = err.Error()
	} else {
		g.rows++
	}
	g.mu.Unlock()
	if err != nil {
		return
	}
	_ = g.take(at, []GPU{x}) // what it could not write it says at the end
	if first {
		close(g.arrived)
	}
}

// after waits for the row that comes after the last answer, and ends the program.
func (g *gpus) after(ctx context.Context) error {
	if g.ep != nil {
		return g.look(ctx, afterAll)
	}
	g.mu.Lock()
	g.when = afterAll
	g.mu.Unlock()
	select {
	case <-g.done:
		g.mu.Lock()
		defer g.mu.Unlock()
		return errors.New(g.ended)
	case <-ctx.Done():
	case <-time.After(g.interval + g.interval/4):
	}
	g.stop()
	return nil
}

func (g *gpus) stop() {
	if g.done != nil {
		g.cancel()
		<-g.done
	}
}

func (g *gpus) finish() error {
	g.stop()
	if g.ep != nil {
		g.ep.close()
	}
	if g.out == nil {
		return nil
	}
	return g.out.close()
}

func (g *gpus) summarize(out *schemas.Observed) {
	if g.ep == nil {
		g.st.Looks = g.rows
		g.st.Bad += g.bad
		if g.bad > 0 && g.st.LastError == "" {
			g.st.LastError = g.badText
		}
	}
	total, why := 0.0, ""
	for _, i := range g.order {
		d := g.devices[i]
		subject := "gpu " + strconv.Itoa(i)
		add := func(name, unit string, s *stats) *schemas.ObservedSeries {
			row := schemas.ObservedSeries{Name: name, Subject: subject, Unit: unit, Kind: "gauge", Source: g.st.Name, File: GPUFile}
			if !s.seen {
				row.Unknown = "the device does not tell"
			}
			s.fill(&row)
			out.Series = append(out.Series, row)
			return &out.Series[len(out.Series)-1]
		}
		add("gpu_power_w", "W", &d.power)
		add("gpu_use_ratio", "ratio", &d.use)
		add("gpu_memory_used_bytes", "bytes", &d.memory)
		joules, err := d.energy(g.out.zero, out.FromNs, out.ToNs, g.interval)
		row := schemas.ObservedSeries{Name: "gpu_energy_j", Subject: subject, Unit: "J", Kind: "counter", Source: g.st.Name, File: GPUFile, N: int64(len(d.at))}
		if err != nil {
			row.Unknown = err.Error()
			why = subject + ": " + err.Error()
		} else {
			row.Delta = &joules
			total += joules
		}
		out.Series = append(out.Series, row)
	}
	v := schemas.Value{Unit: "J"}
	switch {
	case len(g.order) == 0:
		v.Reason = "no device was seen"
	case why != "":
		v.Reason = why
	default:
		v.Value = &total
	}
	out.Values["energy_j"] = v
}

func (d *device) energy(zero time.Time, from, to int64, interval time.Duration) (float64, error) {
	if d.bad != "" {
		return 0, errors.New(d.bad)
	}
	for i, at := range d.at {
		d.samples[i].AtNs = int64(at.Sub(zero))
	}
	return metrics.Energy(d.samples, from, to, int64(interval))
}
