package observe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxProcesses bounds a tree.
const maxProcesses = 10_000

// tree follows the processes of a service: the first one and what descends from
// it. Where a supervisor of ours stands above, orphans come to it, and nothing
// gets away.
type tree struct {
	root   int  // the supervisor, or the first process
	spare  bool // root is not the service's: only what it waited for counts
	pids   []int
	starts map[int]uint64
}

// newTree begins with the service's first process.
func newTree(pid int) (*tree, error) {
	first, err := readStat(pid)
	if err != nil {
		return nil, fmt.Errorf("process of the service: %w", err)
	}
	t := &tree{root: pid, starts: map[int]uint64{}}
	if parent, err := readStat(first.PPID); err == nil && parent.PPID == os.Getpid() {
		t.root, t.spare = parent.PID, true
	}
	t.starts[t.root] = first.StartTicks
	return t, nil
}

// treeSum is a tree's state. CPU counts processes that have ended, as far as they
// were waited for.
type treeSum struct {
	CPUS      float64
	RSSBytes  int64
	Threads   int64
	Processes int64
	// Only of a full look:
	HighWaterBytes         int64
	Voluntary, Involuntary int64
}

var errGone = errors.New("the service's processes have ended")

// look sums the tree up. A full look finds new processes and counts context
// switches of every thread; the others only read the processes that are known.
func (t *tree) look(full bool) (treeSum, error) {
	if full {
		t.find()
	}
	var sum treeSum
	page := int64(os.Getpagesize())
	for _, pid := range t.pids {
		st, err := readStat(pid)
		if err != nil || t.starts[pid] != st.StartTicks {
			continue // ended; its time is with its parent
		}
		sum.CPUS += st.ChildrenS
		if pid == t.root && t.spare {
			continue
		}
		sum.CPUS += st.CPUS
		if st.State == 'Z' || st.State == 'X' {
			continue
		}
		sum.RSSBytes += st.RSSPages * page
		sum.Threads += st.Threads
		sum.Processes++
		if full {
			t.details(pid, &sum)
		}
	}
	if sum.Processes == 0 {
		return sum, errGone
	}
	return sum, nil
}

// details reads what needs a look at every thread.
func (t *tree) details(pid int, sum *treeSum) {
	dir := "/proc/" + strconv.Itoa(pid)
	if b, err := os.ReadFile(dir + "/status"); err == nil {
		if s, err := ParseStatus(b); err == nil {
			sum.HighWaterBytes += s.HighWaterBytes
		}
	}
	for _, tid := range numbers(dir + "/task") {
		b, err := os.ReadFile(dir + "/task/" + tid + "/status")
		if err != nil {
			continue
		}
		if s, err := ParseStatus(b); err == nil {
			sum.Voluntary += s.Voluntary
			sum.Involuntary += s.Involuntary
		}
	}
}

// find lists the tree anew, parents first.
func (t *tree) find() {
	pids, starts := []int{t.root}, map[int]uint64{}
	for i := 0; i < len(pids) && len(pids) < maxProcesses; i++ {
		st, err := readStat(pids[i])
		if err != nil {
			continue
		}
		starts[pids[i]] = st.StartTicks
		for _, child := range children(pids[i]) {
			if _, seen := starts[child]; !seen && !slices.Contains(pids, child) {
				pids = append(pids, child)
			}
		}
	}
	t.pids, t.starts = pids, starts
}

// children lists the children of a process, by whichever of its threads.
func children(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	var out []int
	for _, tid := range numbers(dir) {
		b, err := os.ReadFile(filepath.Join(dir, tid, "children"))
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(word); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// numbers lists the entries of a folder that are numbers.
func numbers(dir string) []string {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	return slices.DeleteFunc(names, func(n string) bool { return strings.Trim(n, "0123456789") != "" })
}

func readStat(pid int) (ProcStat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ProcStat{}, err
	}
	return ParseStat(b)
}
