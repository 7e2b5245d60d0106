package observe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"assay/schemas"
)

// HostFile holds the looks at processes and the host.
const HostFile = "host.jsonl"

// fullEvery is how many looks lie between two at every thread.
const fullEvery = 5

// hostLooker looks at the service's processes and at the host.
type hostLooker struct {
	dir   string
	pid   int // 0: the processes are not known, why says so
	why   string
	st    *schemas.ObservedSource
	out   *sink
	tree  *tree
	count int
	ended bool // the service's processes have

	prevAt   time.Time
	prevTree float64
	prevHost HostStat
	buf      []byte

	service struct{ cpu, cores, rss, high, threads, processes, voluntary, involuntary stats }
	host    struct{ busy, cores, wait, steal, used, switches, pressure stats }
	told    bool // pressure
}

func (h *hostLooker) before(ctx context.Context) error {
	if _, err := readHost(); err != nil {
		return fmt.Errorf("this system's /proc cannot be read: %w", err)
	}
	if h.pid > 0 {
		var err error
		if h.tree, err = newTree(h.pid); err != nil {
			h.why = err.Error()
		}
	}
	out, err := newSink(h.dir, HostFile, map[string]any{"schema": "assay/observed-host/v1", "interval_s": h.st.IntervalS})
	if err != nil {
		return &writeError{err}
	}
	h.out = out
	h.st.Files = append(h.st.Files, HostFile)
	return h.look(ctx, beforeAll)
}

func (h *hostLooker) after(ctx context.Context) error { return h.look(ctx, afterAll) }

func (h *hostLooker) look(_ context.Context, w when) error {
	at := time.Now()
	full := w != meanwhile || h.count%fullEvery == 0
	h.count++
	host, err := readHost()
	if err != nil {
		return err
	}
	var gone error
	b := h.buf[:0]
	if h.tree != nil && !h.ended {
		sum, err := h.tree.look(full)
		if err == nil {
			h.takeTree(w, at, sum, full)
			b = appendTree(b, sum, full)
		} else {
			gone, h.ended = err, errors.Is(err, errGone)
			b = append(member(b, "error", err.Error()), ',')
		}
	}
	h.takeHost(w, at, host)
	b = fmt.Appendf(b, `"host":{"busy_s":%.2f,"iowait_s":%.2f,"steal_s":%.2f,"memory_used_bytes":%d,"context_switches":%d`,
		host.BusyS, host.WaitS, host.StealS, host.MemoryUsedBytes, host.Switches)
	if host.PressureS >= 0 {
		b = fmt.Appendf(b, `,"cpu_pressure_s":%.6f`, host.PressureS)
	}
	b = fmt.Appendf(b, `},"took_ns":%d`, time.Since(at))
	h.buf, h.prevAt, h.prevHost = b, at, host
	return errors.Join(gone, h.out.add(at, b))
}

func appendTree(b []byte, s treeSum, full bool) []byte {
	b = fmt.Appendf(b, `"service":{"cpu_s":%.2f,"rss_bytes":%d,"threads":%d,"processes":%d`, s.CPUS, s.RSSBytes, s.Threads, s.Processes)
	if full {
		b = fmt.Appendf(b, `,"rss_high_water_bytes":%d,"voluntary_switches":%d,"involuntary_switches":%d`, s.HighWaterBytes, s.Voluntary, s.Involuntary)
	}
	return append(b, "},"...)
}

func (h *hostLooker) takeTree(w when, at time.Time, s treeSum, full bool) {
	t := &h.service
	cpu := max(s.CPUS, h.prevTree) // a process nobody waited for takes its time with it
	t.cpu.take(w, cpu)
	if w == meanwhile && at.After(h.prevAt) {
		t.cores.take(w, (cpu-h.prevTree)/at.Sub(h.prevAt).Seconds())
	}
	h.prevTree = cpu
	t.rss.take(w, float64(s.RSSBytes))
	t.threads.take(w, float64(s.Threads))
	t.processes.take(w, float64(s.Processes))
	if full {
		t.high.take(w, float64(s.HighWaterBytes))
		t.voluntary.take(w, max(float64(s.Voluntary), t.voluntary.last))
		t.involuntary.take(w, max(float64(s.Involuntary), t.involuntary.last))
	}
}

func (h *hostLooker) takeHost(w when, at time.Time, s HostStat) {
	t := &h.host
	t.busy.take(w, s.BusyS)
	if took := at.Sub(h.prevAt).Seconds(); w == meanwhile && took > 0 {
		t.cores.take(w, max(0, s.BusyS-h.prevHost.BusyS)/took)
	}
	t.wait.take(w, max(s.WaitS, t.wait.last)) // the kernel lets it fall a little
	t.steal.take(w, s.StealS)
	t.used.take(w, float64(s.MemoryUsedBytes))
	t.switches.take(w, float64(s.Switches))
	if h.told = s.PressureS >= 0; h.told {
		t.pressure.take(w, s.PressureS)
	}
}

func (h *hostLooker) finish() error {
	if h.out == nil {
		return nil
	}
	return h.out.close()
}

func (h *hostLooker) summarize(out *schemas.Observed) {
	add := func(name, unit, kind string, s *stats, unknown string) {
		row := schemas.ObservedSeries{Name: name, Unit: unit, Kind: kind, Source: h.st.Name, File: HostFile, Unknown: unknown}
		if unknown == "" {
			s.fill(&row)
		}
		if h.ended && kind == "counter" && strings.HasPrefix(name, "service_") {
			row.Delta, row.Unknown = nil, errGone.Error()
		}
		out.Series = append(out.Series, row)
	}
	s, why := &h.service, h.why
	add("service_cpu_s", "s", "counter", &s.cpu, why)
	add("service_cpu_cores", "processors", "gauge", &s.cores, why)
	add("service_rss_bytes", "bytes", "gauge", &s.rss, why)
	add("service_rss_high_water_bytes", "bytes", "gauge", &s.high, why)
	add("service_processes", "processes", "gauge", &s.processes, why)
	add("service_threads", "threads", "gauge", &s.threads, why)
	add("service_voluntary_switches", "switches", "counter", &s.voluntary, why)
	add("service_involuntary_switches", "switches", "counter", &s.involuntary, why)
	t, pressure := &h.host, ""
	if !h.told {
		pressure = "the kernel does not tell pressure"
	}
	add("host_cpu_s", "s", "counter", &t.busy, "")
	add("host_cpu_cores", "processors", "gauge", &t.cores, "")
	add("host_iowait_s", "s", "counter", &t.wait, "")
	add("host_steal_s", "s", "counter", &t.steal, "")
	add("host_memory_used_bytes", "bytes", "gauge", &t.used, "")
	add("host_context_switches", "switches", "counter", &t.switches, "")
	add("host_cpu_pressure_s", "s", "counter", &t.pressure, pressure)
}
