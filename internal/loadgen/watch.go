package loadgen

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"assay/schemas"

	"golang.org/x/sys/unix"
)

const (
	schedLatencies = "/sched/latencies:seconds"
	gcPauses       = "/sched/pauses/total/gc:seconds"
	gcCycles       = "/gc/cycles/total:gc-cycles"

	// The collector is kept away until the heap has grown by this much, or to
	// twice what is live.
	quietHeadroom = 96 << 20
)

// Watch observes this process while it measures: what its runtime, its processor
// time and its reads looked like.
type Watch struct {
	started time.Time
	runtime []metrics.Sample
	cpu     time.Duration
	cores   map[string]coreTimes
	client  *Client
}

// NewWatch begins to observe. Give it to the client as Options.Watch.
func NewWatch() *Watch {
	return &Watch{started: time.Now(), runtime: readRuntime(), cpu: processorTime(), cores: readCores()}
}

// Stop fills in what was observed since NewWatch.
func (w *Watch) Stop(v *schemas.ClientVerdict) {
	took := time.Since(w.started)
	now := readRuntime()
	v.SchedLatencyMs = runtimeSpread(w.runtime[0].Value, now[0].Value)
	v.GCPauseMs = runtimeSpread(w.runtime[1].Value, now[1].Value)
	if now[2].Value.Kind() == metrics.KindUint64 {
		v.GCCycles = int64(now[2].Value.Uint64() - w.runtime[2].Value.Uint64())
	}
	v.CPUs = runtime.GOMAXPROCS(0)
	if cpu := processorTime(); cpu > 0 && took > 0 {
		cores := round3(float64(cpu-w.cpu) / float64(took))
		v.CPUCores = &cores
	}
	v.BusiestCore = busiest(w.cores, readCores())
	if w.client == nil {
		return
	}
	v.ReadLagMs = w.client.readLag.spread()
	v.ClockSteps = w.client.clock.steps.Load()
	if p := w.client.priority.Load(); p != nil {
		v.Priority = *p
	}
}

func readRuntime() []metrics.Sample {
	s := []metrics.Sample{{Name: schedLatencies}, {Name: gcPauses}, {Name: gcCycles}}
	metrics.Read(s)
	return s
}

// runtimeSpread is the spread of what a runtime histogram counted in between.
func runtimeSpread(from, to metrics.Value) *schemas.Spread {
	if from.Kind() != metrics.KindFloat64Histogram || to.Kind() != metrics.KindFloat64Histogram {
		return nil
	}
	a, b := from.Float64Histogram(), to.Float64Histogram()
	h := &histogram{}
	for i, n := range b.Counts {
		if n -= a.Counts[i]; n > 0 {
			end := b.Buckets[i+1]
			if math.IsInf(end, 1) {
				end = b.Buckets[i]
			}
			h.addN(int64(end*1e9), int64(n))
		}
	}
	return h.spread()
}

func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// coreTimes are a core's ticks since the machine started.
type coreTimes struct{ idle, all uint64 }

// readCores reads the cores' times of Linux; elsewhere there are none.
func readCores() map[string]coreTimes {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	out := map[string]coreTimes{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		var t coreTimes
		for i, text := range fields[1:min(len(fields), 9)] {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return nil
			}
			t.all += n
			if i == 3 || i == 4 { // idle, waiting for a disk
				t.idle += n
			}
		}
		out[fields[0]] = t
	}
	return out
}

// busiest is the share of its time that the busiest core was not idle.
func busiest(from, to map[string]coreTimes) *float64 {
	var most *float64
	for core, b := range to {
		a, ok := from[core]
		if !ok || b.all <= a.all || b.idle < a.idle {
			continue
		}
		share := round3(1 - float64(b.idle-a.idle)/float64(b.all-a.all))
		if most == nil || share > *most {
			most = &share
		}
	}
	return most
}

func round3(x float64) float64 { return math.Round(x*1e3) / 1e3 }

// QuietCollector collects once and then keeps the collector away until the heap
// has grown to a limit, which an existing lower memory limit overrides. The
// function returned puts everything back.
func QuietCollector() (restore func()) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	limit := int64(m.Sys-m.HeapReleased) + max(quietHeadroom, int64(m.HeapAlloc))
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, limit))
	percent := debug.SetGCPercent(-1)
	return func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(percent)
	}
}
