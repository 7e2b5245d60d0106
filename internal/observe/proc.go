package observe

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerS is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerS = 100

// ProcStat is what is taken of /proc/PID/stat. Times are in seconds.
type ProcStat struct {
	PID, PPID  int
	State      byte
	CPUS       float64 // user and system
	ChildrenS  float64 // of children that were waited for
	Threads    int64
	StartTicks uint64
	RSSPages   int64
}

// ParseStat reads /proc/PID/stat. A program's name may hold anything, so fields
// are counted from the last parenthesis.
func ParseStat(b []byte) (ProcStat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return ProcStat{}, errors.New("stat: no program name")
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil {
		return ProcStat{}, errors.New("stat: no process id")
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 22 {
		return ProcStat{}, fmt.Errorf("stat: %d fields after the name, want 22 or more", len(f))
	}
	if c := f[0]; len(c) != 1 || c[0]|0x20 < 'a' || c[0]|0x20 > 'z' {
		return ProcStat{}, fmt.Errorf("stat: state %.40q, want a letter", c)
	}
	n := func(i int) (v int64) {
		v, e := strconv.ParseInt(string(f[i]), 10, 64)
		if e != nil && err == nil {
			err = fmt.Errorf("stat: field %d: %.40q", i+3, f[i])
		}
		return v
	}
	s := ProcStat{PID: pid, State: f[0][0], PPID: int(n(1)), Threads: n(17), StartTicks: uint64(n(19)), RSSPages: n(21)}
	s.CPUS, s.ChildrenS = float64(n(11)+n(12))/ticksPerS, float64(n(13)+n(14))/ticksPerS
	return s, err
}

// ProcStatus is what is taken of /proc/PID/status.
type ProcStatus struct {
	HighWaterBytes int64 // largest resident set so far
	Voluntary      int64 // context switches, of the one thread
	Involuntary    int64
}

// ParseStatus reads /proc/PID/status. Lines that are not there leave zeros:
// kernel threads have no memory.
func ParseStatus(b []byte) (ProcStatus, error) {
	var s ProcStatus
	for line := range bytes.Lines(b) {
		key, value, _ := bytes.Cut(line, []byte{':'})
		to, scale := (*int64)(nil), int64(1)
		switch string(key) {
		case "VmHWM":
			to, scale = &s.HighWaterBytes, 1024
		case "voluntary_ctxt_switches":
			to = &s.Voluntary
		case "nonvoluntary_ctxt_switches":
			to = &s.Involuntary
		default:
			continue
		}
		word := string(bytes.TrimSuffix(bytes.TrimSpace(value), []byte(" kB")))
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 {
			return s, fmt.Errorf("status: %s: %.40q", key, word)
		}
		*to = n * scale
	}
	return s, nil
}

// HostStat is a host's state since it started, as /proc has it.
type HostStat struct {
	BusyS, WaitS, StealS float64 // processors: working, waiting for a disk, taken by other guests
	Switches             int64
	MemoryUsedBytes      int64
	// PressureS is how long some task waited for a processor; -1 where the kernel
	// does not tell.
	PressureS float64
}

// ParseHost reads /proc/stat, /proc/meminfo and, unless empty,
// /proc/pressure/cpu.
func ParseHost(stat, meminfo, pressure []byte) (HostStat, error) {
	h := HostStat{PressureS: -1}
	cpu, switches := field(stat, "cpu"), field(stat, "ctxt")
	if len(cpu) < 8 || len(switches) < 1 {
		return h, errors.New("/proc/stat: no cpu and ctxt lines")
	}
	var t [8]uint64 // user, nice, system, idle, iowait, irq, softirq, steal
	for i := range t {
		n, err := strconv.ParseUint(cpu[i], 10, 64)
		if err != nil {
			return h, fmt.Errorf("/proc/stat: cpu: %.40q", cpu[i])
		}
		t[i] = n
	}
	for i, to := range []*float64{&h.BusyS, &h.WaitS, &h.StealS} {
		*to = float64([]uint64{t[0] + t[1] + t[2] + t[5] + t[6], t[4], t[7]}[i]) / ticksPerS
	}
	var err error
	if h.Switches, err = strconv.ParseInt(switches[0], 10, 64); err != nil {
		return h, fmt.Errorf("/proc/stat: ctxt: %.40q", switches[0])
	}
	total, free := field(meminfo, "MemTotal:"), field(meminfo, "MemAvailable:")
	if len(total) < 1 || len(free) < 1 {
		return h, errors.New("/proc/meminfo: no MemTotal and MemAvailable")
	}
	a, errA := strconv.ParseInt(total[0], 10, 64)
	b, errB := strconv.ParseInt(free[0], 10, 64)
	if errA != nil || errB != nil {
		return h, errors.New("/proc/meminfo: not numbers")
	}
	h.MemoryUsedBytes = (a - b) * 1024
	for _, word := range field(pressure, "some") {
		if us, ok := strings.CutPrefix(word, "total="); ok {
			if n, err := strconv.ParseInt(us, 10, 64); err == nil {
				h.PressureS = float64(n) / 1e6
			}
		}
	}
	return h, nil
}

// field returns the words after key on the first line that begins with it.
func field(b []byte, key string) []string {
	for line := range bytes.Lines(b) {
		if f := strings.Fields(string(line[:min(len(line), 4096)])); len(f) > 0 && f[0] == key {
			return f[1:]
		}
	}
	return nil
}

func readHost() (HostStat, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return HostStat{}, err
	}
	mem, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return HostStat{}, err
	}
	pressure, _ := os.ReadFile("/proc/pressure/cpu") // older kernels have none
	return ParseHost(stat, mem, pressure)
}
