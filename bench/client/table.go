package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
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
		of(func(r row) float64 { return r.LateP99 }), of(func(r row) float64 { return r.ServerLateP99 }), rows[0].Verdict.OK)
	return nil
}

// inProcess runs one row in a process of its own.
func inProcess(ctx context.Context, want row) (row, error) {
	exe, err := os.Executable()
	if err != nil {
		return row{}, err
	}
	cmd := exec.CommandContext(ctx, exe, "measure", "-streams", fmt.Sprint(want.Streams), "-tokens", fmt.Sprint(want.Tokens),
		fmt.Sprintf("-user=%v", want.User), fmt.Sprintf("-predial=%v", want.Predial))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return row{}, fmt.Errorf("%d streams: %w", want.Streams, err)
	}
	var got row
	if err := json.Unmarshal(out, &got); err != nil {
		return row{}, fmt.Errorf("%d streams: %w", want.Streams, err)
	}
	return got, nil
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
