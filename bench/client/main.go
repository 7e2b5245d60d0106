// Command client measures how exact the load client is, against a server in
// another process that sends at fixed times and notes when it wrote: for each
// number of streams, by the kernel's stamps and by those of the read, with and
// without connections made before. Further parts are how late requests leave, how
// many short ones it gets through, and how much memory many streams take.
// BENCH_PARTS (stamps, late, rate, memory, peers) chooses among them; BENCH_STREAMS,
// BENCH_ROUNDS (5 for figures to publish) and BENCH_TOKENS change their sizes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench-client:", err)
		os.Exit(1)
	}
}

// run is the table, or one of the processes it is made with.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return all(ctx)
	}
	switch args[0] {
	case "serve-whole":
		return serveWhole()
	case "rate":
		return rateOnce(ctx, args[1:])
	case "late":
		return lateOnce(ctx, args[1:])
	case "stress":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return stress(n)
	case "serve":
		return serve(args[1:])
	case "measure":
		return measureOnce(ctx, args[1:])
	}
	return fmt.Errorf("unknown part %q", args[0])
}

// all runs the parts that are asked for.
func all(ctx context.Context) error {
	parts := os.Getenv("BENCH_PARTS")
	if parts == "" {
		parts = "stamps,late,rate,memory"
	}
	rounds, err := numbers("BENCH_ROUNDS", 1)
	if err != nil {
		return err
	}
	for _, part := range strings.Split(parts, ",") {
		switch part {
		case "stamps":
			err = table(ctx)
		case "late":
			err = lateness(ctx, rounds[0])
		case "rate":
			err = rates(ctx, rounds[0])
		case "memory":
			err = memory(ctx, rounds[0])
		case "peers":
			var streams []int
			if streams, err = numbers("BENCH_STREAMS", 1, 10, 100, 500, 1000); err == nil {
				err = peers(ctx, streams)
			}
		default:
			err = fmt.Errorf("BENCH_PARTS: unknown part %q", part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// numbers reads a list from the environment.
func numbers(name string, def ...int) ([]int, error) {
	text := os.Getenv(name)
	if text == "" {
		return def, nil
	}
	var out []int
	for _, s := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s=%q: want whole numbers above 0, separated by commas", name, text)
		}
		out = append(out, n)
	}
	return out, nil
}
