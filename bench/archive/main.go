// Command archive measures storing, verifying and extracting against what else
// could be done with the same bytes on the same disk: cp and sync, openssl,
// restic, borg, find. It prints ratios: medians of rounds in which all take
// turns. Start it with `make bench-archive`, which installs what is missing.
package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// settings come from the environment: see bench/archive.sh.
type settings struct {
	dir             string
	rounds          int
	largeMiB, files int
	scale           []int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		if err := child(context.Background(), os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func number(name string, small, full int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	if os.Getenv("BENCH_FULL") == "1" {
		return full
	}
	return small
}

func run() error {
	s := settings{rounds: number("BENCH_ROUNDS", 5, 5), largeMiB: number("BENCH_LARGE_MIB", 1024, 4096), files: number("BENCH_FILES", 20_000, 100_000)}
	for n := 10_000; n <= number("BENCH_SCALE", 100_000, 1_000_000); n *= 10 {
		s.scale = append(s.scale, n)
	}
	base := cmp.Or(os.Getenv("BENCH_DIR"), os.TempDir())
	dir, err := os.MkdirTemp(base, "assay-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s.dir = dir
	fmt.Printf("in %s; medians of %d rounds\n", base, s.rounds)
	only := os.Getenv("BENCH_PARTS")
	for _, part := range []struct {
		name string
		run  func(settings) error
	}{{"large", large}, {"small", small}, {"scale", scale}, {"runs", manyRuns}} {
		if only != "" && !slices.Contains(strings.Split(only, ","), part.name) {
			continue
		}
		if err := part.run(s); err != nil {
			return err
		}
	}
	return nil
}

// contender is one way to do a job. before is not timed.
type contender struct {
	name   string
	before func() error
	argv   []string
	env    []string
}

// result of a contender: medians.
type result struct {
	wall, cpu time.Duration
	peakMiB   int64
}

// race lets the contenders take turns, in another order each round: a disk that
// has just taken gigabytes is slower for whoever comes next.
func race(rounds int, list []contender) (map[string]result, error) {
	all := map[string][]result{}
	order := rand.New(rand.NewPCG(4, 4))
	for range rounds {
		for _, i := range order.Perm(len(list)) {
			c := list[i]
			if c.before != nil {
				if err := c.before(); err != nil {
					return nil, fmt.Errorf("%s: %w", c.name, err)
				}
			}
			r, err := timed(c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			all[c.name] = append(all[c.name], r)
		}
	}
	out := map[string]result{}
	for name, rs := range all {
		out[name] = result{median(rs, func(r result) time.Duration { return r.wall }), median(rs, func(r result) time.Duration { return r.cpu }),
			median(rs, func(r result) int64 { return r.peakMiB })}
	}
	for _, c := range list {
		fmt.Printf("  %-26s %8.2f s  (processor %6.2f s, peak %4d MiB)\n", c.name, out[c.name].wall.Seconds(), out[c.name].cpu.Seconds(), out[c.name].peakMiB)
	}
	return out, nil
}

func median[T cmp.Ordered](rs []result, of func(result) T) T {
	var list []T
	for _, r := range rs {
		list = append(list, of(r))
	}
	slices.Sort(list)
	return list[len(list)/2]
}

func timed(c contender) (result, error) {
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	r := result{wall: time.Since(start)}
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, out)
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.peakMiB = u.Maxrss >> 10
	}
	return r, nil
}

// ratio prints one line of the result.
func ratio(what string, ours, theirs time.Duration, limit float64) {
	r := ours.Seconds() / theirs.Seconds()
	verdict := "holds"
	if r > limit {
		verdict = "DOES NOT HOLD"
	}
	fmt.Printf("%-62s %5.2fx  want at most %.2fx: %s\n", what, r, limit, verdict)
}

func (s settings) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// fresh removes what a round left, and waits for the disk.
func fresh(paths ...string) func() error {
	return func() error {
		for _, p := range paths {
			if err := os.RemoveAll(p); err != nil {
				return err
			}
		}
		syscall.Sync()
		return nil
	}
}

func self(args ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return append([]string{exe, "child"}, args...)
}

func shell(script string, args ...string) []string {
	return append([]string{"sh", "-euc", script, "sh"}, args...)
}
