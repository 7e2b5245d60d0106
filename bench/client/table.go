package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"

	"assay/internal/loadgen"
)

// table runs every row, each run in processes of its own, and prints medians.
func table(ctx context.Context) error {
	streams, err := numbers("BENCH_STREAMS", 1, 10, 100, 500, 1000)
	if err != nil {
		return err
	}
	rounds, err := numbers("BENCH_ROUNDS", 1)
	if err != nil {
		return err
	}
	tokens, err := numbers("BENCH_TOKENS", 100)
	if err != nil {
		return err
	}
	fmt.Printf("%d tokens a stream, %v apart, the first after %v; starts over %v; median of %d; %d processors, server included\n",
		tokens[0], tokenGap, firstToken, startSpread, rounds[0], runtime.NumCPU())
	fmt.Println("errors in ms, against the server's own times of the call of write; over: mean measured TTFT less 50 ms, as published for other clients")
	fmt.Printf("%7s %-6s %-7s | %7s %7s %7s %7s | %7s %7s %7s | %8s %8s | %6s %6s %6s | %6s %6s %5s\n", "streams", "stamps", "predial",
		"TTFT", "p99", "max", "over", "gap", "p99", "max", "shared", "outside", "cpu s", "srv s", "MiB", "late99", "srv99", "ok")
	for _, n := range streams {
		for _, user := range []bool{false, true} {
			for _, predial := range []bool{true, false} {
				if err := printRow(ctx, row{Streams: n, Tokens: tokens[0], User: user, Predial: predial}, rounds[0]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func printRow(ctx context.Context, want row, rounds int) error {
	var rows []row
	for range rounds {
		r, err := inProcess(ctx, want)
		if err != nil {
			return err
		}
		if r.NotOK > 0 {
			fmt.Printf("  %d of %d streams did not come whole\n", r.NotOK, r.Streams)
		}
		rows = append(rows, r)
	}
	of := func(value func(row) float64) float64 { return median(rows, value) }
	stamps, predial := "kernel", "yes"
	if want.User {
		stamps = "user"
	}
	if !want.Predial {
		predial = "no"
	}
	fmt.Printf("%7d %-6s %-7s | %7.3f %7.3f %7.3f %7.3f | %7.4f %7.3f %7.3f | %7.3f%% %7.3f%% | %6.2f %6.2f %6.0f | %6.2f %6.2f %5s\n", want.Streams, stamps, predial,
		of(func(r row) float64 { return r.TTFTMean }), of(func(r row) float64 { return r.TTFTP99 }), of(func(r row) float64 { return r.TTFTMax }), of(func(r row) float64 { return r.TTFTOver }),
		of(func(r row) float64 { return r.GapMean }), of(func(r row) float64 { return r.GapP99 }), of(func(r row) float64 { return r.GapMax }),
		100*of(func(r row) float64 { return r.Shared }), 100*of(func(r row) float64 { return float64(r.Outside) / float64(max(r.Stamps, 1)) }),
		of(func(r row) float64 { return r.ClientCPU }), of(func(r row) float64 { return r.ServerCPU }), of(func(r row) float64 { return r.PeakRSSMiB }),
		of(func(r row) float64 { return r.LateP99 }), of(func(r row) float64 { return r.ServerLateP99 }), believed(rows))
	return nil
}

// believed is how many of the runs had client_ok true.
func believed(rows []row) string {
	n := 0
	for _, r := range rows {
		if r.Verdict.OK == loadgen.ClientOK {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(rows))
}

// inProcess runs one row in a process of its own.
func inProcess(ctx context.Context, want row) (row, error) {
	var got row
	err := inOwnProcess(ctx, &got, "measure", "-streams", fmt.Sprint(want.Streams), "-tokens", fmt.Sprint(want.Tokens),
		fmt.Sprintf("-user=%v", want.User), fmt.Sprintf("-predial=%v", want.Predial))
	return got, err
}

// inOwnProcess runs a part of this command and reads its result.
func inOwnProcess(ctx context.Context, result any, part string, args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, exe, append([]string{part}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, result)
	}
	if err != nil {
		return fmt.Errorf("%s %v: %w", part, args, err)
	}
	return nil
}

// memory prints what many streams at once take.
func memory(ctx context.Context, rounds int) error {
	fmt.Printf("\nmemory of the client's process with all streams at once, every record kept by the benchmark; median of %d\n", rounds)
	for _, n := range []int{1000, 2000} {
		var rows []row
		for range rounds {
			r, err := inProcess(ctx, row{Streams: n, Tokens: 200, Predial: true})
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
		fmt.Printf("%d streams of 200 tokens: %.0f MiB at its peak, %.2f %% of the stamps shared, %d streams not whole\n",
			n, median(rows, func(r row) float64 { return r.PeakRSSMiB }), 100*median(rows, func(r row) float64 { return r.Shared }), rows[0].NotOK)
	}
	return nil
}

// middle is the row with the median value.
func middle[R any](rows []R, value func(R) float64) R {
	rows = slices.SortedFunc(slices.Values(rows), func(a, b R) int { return cmp.Compare(value(a), value(b)) })
	return rows[len(rows)/2]
}

func median(rows []row, value func(row) float64) float64 {
	var all []float64
	for _, r := range rows {
		all = append(all, value(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// summary is the mean, the 99th percentile by nearest rank and the largest, in ms.
func summary(ns []int64) (mean, p99, most float64) {
	if len(ns) == 0 {
		return 0, 0, 0
	}
	slices.Sort(ns)
	sum := 0.0
	for _, n := range ns {
		sum += float64(n)
	}
	return sum / float64(len(ns)) / 1e6, float64(ns[(len(ns)*99+99)/100-1]) / 1e6, float64(ns[len(ns)-1]) / 1e6
}
