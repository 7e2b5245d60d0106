// Command client measures how exact the load client is, against a server in
// another process that sends at fixed times and notes when it wrote: for each
// number of streams, by the kernel's stamps and by those of the read, with and
// without connections made before. BENCH_STREAMS, BENCH_ROUNDS (5 for figures to
// publish) and BENCH_TOKENS change its sizes.
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
		return table(ctx)
	}
	switch args[0] {
	case "serve":
		return serve(args[1:])
	case "measure":
		return measureOnce(ctx, args[1:])
	}
	return fmt.Errorf("unknown part %q", args[0])
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
