package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// manyRuns: ten processes seal 100 runs each into one store; then what people do
// in a store of a thousand runs, by the program itself (ASSAY names it).
func manyRuns(s settings) error {
	const processes, each = 10, 100
	store := s.path("runs")
	fmt.Printf("\n%d processes seal %d runs each into one store\n", processes, each)
	start := time.Now()
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for p := range processes {
		wg.Go(func() {
			_, errs[p] = timed(contender{argv: self("runs", store, fmt.Sprint("p", p), fmt.Sprint(each))})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	fmt.Printf("  %.1f s, %.1f ms a run\n", time.Since(start).Seconds(), float64(time.Since(start).Milliseconds())/(processes*each))
	exe := os.Getenv("ASSAY")
	if exe == "" {
		fmt.Println("ls, show, tag: ASSAY names no program")
		return fresh(store)()
	}
	list, err := timed(contender{argv: shell(`test "$("$1" ls --store "$2" --format json | grep -c '"digest"')" -ge "$3"`, exe, store, fmt.Sprint(processes*each))})
	if err != nil {
		return fmt.Errorf("runs were lost after %s: %w", list.wall, err)
	}
	leases, err := filepath.Glob(filepath.Join(store, "assay", "leases", "*"))
	if err != nil || len(leases) > 0 {
		return fmt.Errorf("leases are left: %s, %w", strings.Join(leases, " "), err)
	}
	fmt.Printf("  all %d are there, no lease is left\n", processes*each)
	res, err := race(4*s.rounds, []contender{
		{"assay version", nil, []string{exe, "version"}, nil},
		{"assay ls", nil, []string{exe, "ls", "--store", store}, nil},
		{"assay show TAG", nil, []string{exe, "show", "p7-042", "--store", store}, nil},
		{"assay tag REF TAG", nil, []string{exe, "tag", "p3-014", "again", "--store", store}, nil},
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"assay ls", "assay show TAG", "assay tag REF TAG"} {
		verdict := "holds"
		if res[name].wall > 50*time.Millisecond {
			verdict = "DOES NOT HOLD"
		}
		fmt.Printf("%-62s %4d ms  want at most 50 ms: %s\n", name+" among 1,000 runs", res[name].wall.Milliseconds(), verdict)
	}
	return fresh(store)()
}
