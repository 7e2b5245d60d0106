package durable

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const tempPrefix = ".tmp-"

var tempCount atomic.Uint64

// tempName is unique in the folder and names the process, so that what a dead
// one left behind can be told from what a live one is writing.
func tempName() string {
	return tempPrefix + Self() + "-" + strconv.FormatUint(tempCount.Add(1), 36)
}

// IsTemp reports whether a base name is that of a temporary file of this package.
func IsTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }

// Self names this process: host, boot, PID namespace, PID and start time. It is
// made of letters, digits and dots.
var Self = sync.OnceValue(func() string {
	start, _ := startTime(os.Getpid())
	return fmt.Sprintf("%s.%d.%s", hostToken(), os.Getpid(), start)
})

// Dead reports whether the process that token (from Self) names is provably
// gone. For another host, another PID namespace, or what is no token it is false.
func Dead(token string) bool {
	p := strings.Split(token, ".")
	mine := strings.Split(Self(), ".")
	if len(p) != len(mine) || p[0] != mine[0] {
		return false
	}
	if p[1] != mine[1] {
		return true // the host has been booted since
	}
	pid, err := strconv.Atoi(p[3])
	if p[2] != mine[2] || err != nil || pid <= 0 || mine[2] == "none" {
		return false
	}
	start, err := startTime(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	return err == nil && start != p[4]
}

// SameKernel reports whether the process that token (from Self) names runs, or
// ran, under the kernel that runs this one, perhaps in another container: a lock
// it holds can then be seen from here.
func SameKernel(token string) bool {
	p, mine := strings.Split(token, "."), strings.Split(Self(), ".")
	return len(p) == len(mine) && p[1] == mine[1]
}

// SameNamespace reports whether Dead can tell of token: same host, boot and PID
// namespace.
func SameNamespace(token string) bool {
	p, mine := strings.Split(token, "."), strings.Split(Self(), ".")
	return len(p) == len(mine) && p[0] == mine[0] && p[1] == mine[1] && p[2] == mine[2] && mine[2] != "none"
}

// TempHolder returns the token of the process that made a temporary file, by its
// base name.
func TempHolder(name string) (token string, ok bool) {
	token, ok = strings.CutPrefix(name, tempPrefix)
	i := strings.LastIndexByte(token, '-')
	if !ok || i <= 0 {
		return "", false
	}
	return token[:i], true
}

// SweepTemps removes the temporary files in dir that dead processes left.
func SweepTemps(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if token, ok := TempHolder(e.Name()); ok && Dead(token) {
			path := filepath.Join(dir, e.Name())
			if err := before(OpRemove, path); err != nil {
				return err
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostToken is "<host>.<boot>.<PID namespace>". A container has its own
// namespace, and perhaps the host's name, so all three are needed.
func hostToken() string {
	name, _ := os.Hostname()
	machine, _ := os.ReadFile("/etc/machine-id")
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns := "none"
	if link, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		ns = short(link)
	}
	return short(name+"\n"+string(machine)) + "." + short(string(boot)) + "." + ns
}

func short(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// startTime is a process's start in clock ticks since boot, field 22 of its stat
// file. fs.ErrNotExist when there is no such process, or when it has ended and only
// waits for a parent that does not ask for it, as in containers without an init.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if _, perr := os.Stat("/proc/self/stat"); perr != nil {
			return "0", fmt.Errorf("no /proc: %w", errors.ErrUnsupported)
		}
		return "0", err
	}
	// The command name, in parentheses, may hold spaces and parentheses.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 {
		return "0", fmt.Errorf("read /proc/%d/stat: %d fields after the name, want 20", pid, len(fields))
	}
	if ended(fields[0]) && allEnded(pid) {
		return "0", fmt.Errorf("process %d has ended: %w", pid, fs.ErrNotExist)
	}
	return fields[19], nil
}

func ended(state string) bool { return state == "Z" || state == "X" }

// allEnded says that no thread of a process runs: the first may end before others.
func allEnded(pid int) bool {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	for _, t := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, t.Name()))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) > 0 && !ended(fields[0]) {
			return false
		}
	}
	return true
}
