package loadgen

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// onWire says that requests are sent by this package itself.
const onWire = true

// The priorities that a thread can have been given.
const (
	priorityNormal   = "normal"
	priorityNice     = "nice"
	priorityRealTime = "real-time"
)

// hotPriority is low among the real-time ones: above all ordinary work, below what
// a system runs at such a priority of its own.
const hotPriority = 2

// hotThread prepares the locked thread that calls it: timers as exact as they can
// be, and if raise, the highest priority of three that the system permits.
func hotThread(raise bool) *string {
	got := priorityNormal
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) //nolint:errcheck // lateness is measured, whatever its cause
	if raise {
		switch {
		case unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: hotPriority}, 0) == nil:
			got = priorityRealTime
		case unix.Setpriority(unix.PRIO_PROCESS, 0, -10) == nil:
			got = priorityNice
		}
	}
	return &got
}

// RaiseProcess gives every thread of this process real-time priority, below that
// of the threads that send and read. It is for a server that stands in for a
// service in a benchmark: its times are to be its own, not those of other work.
func RaiseProcess() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("raise priority: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: hotPriority - 1}, 0); err != nil {
			return fmt.Errorf("raise priority: %w", err)
		}
	}
	return nil
}

// threadSleep sleeps for d on the thread itself, without the Go scheduler's timers.
func threadSleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &ts, nil) //nolint:errcheck // an early return is looked at by the caller
}

var procs struct {
	mu    sync.Mutex
	extra int
}

// moreProcs lets n more threads run Go at once. Those that only wait for the
// kernel then find their place when they come back, however busy the others are.
func moreProcs(n int) (restore func()) {
	add := func(n int) {
		procs.mu.Lock()
		defer procs.mu.Unlock()
		procs.extra += n
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + n)
	}
	add(n)
	return sync.OnceFunc(func() { add(-n) })
}
