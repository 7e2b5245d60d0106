// Command assay runs experiments on LLM serving systems and keeps what they
// gave as content-addressed, verifiable runs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"assay/internal/cli"
	"assay/internal/supervise"
)

func main() { os.Exit(run()) }

// run is the process entry, apart from os.Exit. A supervisor is this executable
// again: it decides for itself about signals, so it is told apart first.
func run() int {
	if supervise.IsWorker(os.Args[1:]) {
		return supervise.Main()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(cli.ErrInterrupted)
		<-signals
		// Whoever asks twice does not want to wait: the supervisors see their
		// pipe close and end every child.
		os.Exit(cli.ExitInterrupted)
	}()
	return cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}
