package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"assay/internal/loadgen"
	"assay/schemas"

	"golang.org/x/sys/unix"
)

// lateRow is one open loop of short streams.
type lateRow struct {
	Rate     int
	Seconds  int
	Normal   bool // the client's threads are left at normal priority
	Failed   int
	CPU      float64
	Verdict  schemas.ClientVerdict
	Stressed int // busy threads beside
}

// lateOnce is the process of a client that sends at a rate.
func lateOnce(ctx context.Context, args []string) error {
	var r lateRow
	set := flag.NewFlagSet("late", flag.ContinueOnError)
	set.IntVar(&r.Rate, "rate", 1000, "")
	set.IntVar(&r.Seconds, "seconds", 5, "")
	set.BoolVar(&r.Normal, "normal", false, "")
	if err := set.Parse(args); err != nil {
		return err
	}
	server, err := startServer(ctx, 5)
	if err != nil {
		return err
	}
	defer server.stop()
	pool, err := loadgen.Predial(ctx, server.url, 200, 0)
	if err != nil {
		pool.Close() // what was dialled before the error
		return err
	}
	defer pool.Close()
	opts := loadgen.Options{BaseURL: server.url, Pool: pool, NormalPriority: r.Normal}
	for i := range r.Rate * r.Seconds {
		opts.Requests = append(opts.Requests, loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{
			Index: i, ID: fmt.Sprintf("s%d", i), Model: "fixed", InputTokens: 16, OutputTokens: 5, AtNs: int64(time.Second) * int64(i) / int64(r.Rate)}})
	}
	defer loadgen.QuietCollector()()
	opts.Watch, opts.Anchor = loadgen.NewWatch(), time.Now().Add(200*time.Millisecond)
	before := cpuSeconds()
	var tally loadgen.StampTally
	err = loadgen.Run(ctx, opts, func(rec schemas.RequestRecord) error {
		if tally.Add(&rec); rec.Outcome != schemas.OutcomeOK {
			r.Failed++
		}
		return nil
	})
	r.CPU = cpuSeconds() - before
	opts.Watch.Stop(&r.Verdict)
	tally.Judge(&r.Verdict)
	if err != nil {
		return err
	}
	if _, err := server.account(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// stress keeps n threads busy at a high priority, but not a real-time one, until
// its standard input ends.
func stress(n int) error {
	unix.Setpriority(unix.PRIO_PROCESS, 0, -15) //nolint:errcheck // it is busy at any priority
	for range n - 1 {
		go spinForever()
	}
	go spinForever()
	var b [1]byte
	os.Stdin.Read(b[:]) //nolint:errcheck // its end is what is waited for
	return nil
}

func spinForever() {
	for i := uint64(1); i != 0; i += 2 { //nolint:revive // it is to be busy
	}
}

// lateness prints how late requests leave: on the machine as it is, and loaded on
// purpose.
func lateness(ctx context.Context, rounds int) error {
	fmt.Printf("\nlateness of sends: open loop, 1000 requests/s for 5 s, 5 tokens each; ms from the scheduled time to the call of write; the round with the median p99 of %d\n", rounds)
	fmt.Printf("%-30s %-9s | %8s %8s %8s | %6s %6s %5s\n", "beside", "priority", "p50", "p99", "max", "failed", "cpu s", "ok")
	for _, want := range []lateRow{{}, {Normal: true}, {Stressed: 16}, {Stressed: 16, Normal: true}} {
		var rows []lateRow
		for range rounds {
			r, err := lateProcess(ctx, want)
			if err != nil {
				return err
			}
			rows = append(rows, r)
		}
		r := middle(rows, func(r lateRow) float64 { return r.Verdict.LatenessMs.P99 })
		beside := "what else runs"
		if want.Stressed > 0 {
			beside = fmt.Sprintf("%d busy threads, nice -15", want.Stressed)
		}
		v := r.Verdict
		fmt.Printf("%-30s %-9s | %8.3f %8.3f %8.3f | %6d %6.2f %5s\n", beside, v.Priority, v.LatenessMs.P50, v.LatenessMs.P99, v.LatenessMs.Max, r.Failed, r.CPU, v.OK)
		for _, why := range v.Reasons {
			fmt.Println("    " + why)
		}
	}
	return nil
}

func lateProcess(ctx context.Context, want lateRow) (lateRow, error) {
	exe, err := os.Executable()
	if err != nil {
		return want, err
	}
	if want.Stressed > 0 {
		busy := exec.CommandContext(ctx, exe, "stress", fmt.Sprint(want.Stressed))
		in, err := busy.StdinPipe()
		if err != nil {
			return want, err
		}
		if err := busy.Start(); err != nil {
			return want, err
		}
		defer busy.Wait() //nolint:errcheck // it ends when its input does
		defer in.Close()
	}
	got := want
	if err := inOwnProcess(ctx, &got, "late", fmt.Sprintf("-normal=%v", want.Normal)); err != nil {
		return got, err
	}
	if got.Verdict.LatenessMs == nil {
		return got, fmt.Errorf("lateness: nothing was sent: %v", got.Verdict.Reasons)
	}
	return got, nil
}
