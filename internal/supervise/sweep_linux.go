package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Sweep kills every process of this user that carries token in its MarkerEnv,
// this process and its ancestors excepted, and returns when none is left, with
// the number killed. It finds what is left of an assay that was killed together
// with its supervisors.
func Sweep(token string) (int, error) {
	if !validToken(token) {
		return 0, fmt.Errorf("sweep: token %q: want 8 to 128 letters, digits, '.', '_' or '-'", token)
	}
	spare := ancestors()
	killed := map[procStat]bool{}
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(killLimit); ; <-poll.C {
		left := 0
		for _, pid := range pids() {
			if !spare[pid] && sweepOne(pid, token, killed) {
				left++
			}
		}
		if left == 0 {
			return len(killed), nil
		}
		if time.Now().After(deadline) {
			return len(killed), fmt.Errorf("sweep: %d processes marked %s did not end: end them by hand", left, token)
		}
	}
}

// sweepOne kills pid if it is marked and reports whether it was.
func sweepOne(pid int, token string, killed map[procStat]bool) bool {
	h, err := openHandle(pid)
	if err != nil {
		return false
	}
	defer h.close()
	if !carries(pid, token) {
		return false
	}
	st, err := readStat(pid)
	if err != nil || !st.living() {
		return false
	}
	if h.signal(syscall.SIGKILL) != nil {
		return false // gone meanwhile, or not ours
	}
	killed[procStat{pid: st.pid, start: st.start}] = true
	return true
}

// carries reports whether a process of this user has token in its marker.
func carries(pid int, token string) bool {
	dir := "/proc/" + strconv.Itoa(pid)
	info, err := os.Stat(dir)
	if err != nil {
		return false
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return false
	}
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return false
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		tokens, ok := bytes.CutPrefix(kv, []byte(MarkerEnv+"="))
		if !ok {
			continue
		}
		for t := range bytes.SplitSeq(tokens, []byte{':'}) {
			if string(t) == token {
				return true
			}
		}
	}
	return false
}

// ancestors are this process and those above it.
func ancestors() map[int]bool {
	out := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !out[pid]; {
		out[pid] = true
		st, err := readStat(pid)
		if err != nil {
			break
		}
		pid = st.ppid
	}
	return out
}
