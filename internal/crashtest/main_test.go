package crashtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"assay/internal/cli"
	"assay/internal/durable"
	"assay/internal/supervise"
)

// Variables that the test sets for a child that is this binary as assay.
const (
	killAt    = "ASSAY_CRASHTEST_KILL_AT"    // kill itself at this durable operation
	countFile = "ASSAY_CRASHTEST_COUNT_FILE" // write down how many there were
)

// TestMain makes the test binary assay itself when it is called with a command:
// what is killed is the real program, supervisors and engines included.
func TestMain(m *testing.M) {
	if supervise.IsWorker(os.Args[1:]) {
		syscall.Exit(supervise.Main()) // os.Exit waits a second under the race detector
	}
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-test.") {
		os.Exit(asAssay())
	}
	flag.Parse()
	// The runs wait for disks and clocks, not for processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

func asAssay() int {
	var count atomic.Int64
	at, _ := strconv.ParseInt(os.Getenv(killAt), 10, 64)
	durable.SetHook(func(durable.Op, string) error {
		if count.Add(1) == at {
			if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
				fmt.Fprintln(os.Stderr, "kill:", err)
			}
			select {} // not one step further
		}
		return nil
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code := cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if f := os.Getenv(countFile); f != "" {
		if err := os.WriteFile(f, strconv.AppendInt(nil, count.Load(), 10), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return code
}
