// Command real holds what a run measured against what llama.cpp itself says it
// took, in its log:
//
//	assay extract latest DIR
//	real [--within 0.05] DIR STAGE...
//
// The stages are named in the order in which they used the service; the log has one
// account per request, in the order in which they were answered. It exits 1 when
// the two differ by more than the given share.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	within := flag.Float64("within", 0.05, "largest share by which sums over a stage may differ")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: real [--within SHARE] DIR STAGE...")
		os.Exit(2)
	}
	if err := compare(os.Stdout, flag.Arg(0), flag.Args()[1:], *within); err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
}

func compare(w io.Writer, dir string, names []string, within float64) error {
	logs, err := filepath.Glob(filepath.Join(dir, "services", "*", "service.log"))
	if err != nil || len(logs) != 1 {
		return fmt.Errorf("%d logs below services, want one: is %s an extracted run?", len(logs), dir)
	}
	f, err := os.Open(logs[0])
	if err != nil {
		return err
	}
	defer f.Close()
	told, err := readLog(f)
	if err != nil {
		return fmt.Errorf("%s: %w", logs[0], err)
	}
	stages, err := readStages(dir, names)
	if err != nil {
		return err
	}
	if err := match(stages, told); err != nil {
		return err
	}
	return judge(w, stages, within)
}
