package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// procStat is what matters of /proc/PID/stat.
type procStat struct {
	pid, ppid int
	state     byte
	start     uint64 // clock ticks after boot; with pid it names one process
}

// readStat reads /proc/PID/stat. The program's name in it is hostile: it may
// hold spaces and parentheses, so fields are counted from its last ')'.
func readStat(pid int) (procStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return procStat{}, fmt.Errorf("/proc/%d/stat: no program name", pid)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return procStat{}, fmt.Errorf("/proc/%d/stat: %d fields after the name", pid, len(f))
	}
	ppid, err := strconv.Atoi(string(f[1]))
	if err != nil {
		return procStat{}, fmt.Errorf("/proc/%d/stat: parent: %w", pid, err)
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("/proc/%d/stat: start: %w", pid, err)
	}
	return procStat{pid: pid, ppid: ppid, state: f[0][0], start: start}, nil
}

// pids lists all processes. A process that ends meanwhile may be listed.
func pids() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	out := make([]int, 0, len(names))
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// descendants lists the living processes below root, parents first. Zombies are
// not counted: they only wait to be reaped by their parent, which is below root
// too, or is root.
func descendants(root int) []procStat {
	children := map[int][]procStat{}
	for _, pid := range pids() {
		if st, err := readStat(pid); err == nil {
			children[st.ppid] = append(children[st.ppid], st)
		}
	}
	var out []procStat
	seen := map[int]bool{root: true}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			if seen[c.pid] {
				continue
			}
			seen[c.pid] = true
			queue = append(queue, c.pid)
			if c.living() {
				out = append(out, c)
			}
		}
	}
	return out
}

func (p procStat) living() bool { return p.state != 'Z' && p.state != 'X' }

// signalAll sends sig to each process, unless its id meanwhile names another one,
// and returns how many took it.
func signalAll(procs []procStat, sig syscall.Signal) int {
	n := 0
	for _, p := range procs {
		if signalOne(p, sig) {
			n++
		}
	}
	return n
}

func signalOne(p procStat, sig syscall.Signal) bool {
	h, err := openHandle(p.pid)
	if err != nil {
		return false
	}
	defer h.close()
	now, err := readStat(p.pid)
	return err == nil && now.start == p.start && now.living() && h.signal(sig) == nil
}

// handle names one process for good: a process id can be given to another
// process between a look and a signal, a handle cannot.
type handle struct {
	pid int
	fd  int // -1 where the kernel has none (before Linux 5.3)
}

func openHandle(pid int) (handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ENOSYS) {
		return handle{pid: pid, fd: -1}, nil
	}
	return handle{pid: pid, fd: fd}, err
}

func (h handle) signal(sig syscall.Signal) error {
	if h.fd < 0 {
		return syscall.Kill(h.pid, sig)
	}
	return unix.PidfdSendSignal(h.fd, sig, nil, 0)
}

func (h handle) close() {
	if h.fd >= 0 {
		unix.Close(h.fd)
	}
}
