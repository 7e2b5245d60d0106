package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"assay/internal/loadgen"

	"golang.org/x/sys/unix"
)

// The shape of every stream.
const (
	firstToken = 50 * time.Millisecond
	tokenGap   = 10 * time.Millisecond
)

// hello is the first line of a server.
type hello struct {
	URL    string
	Raised bool // it has real-time priority
}

// account is what a server says at its end.
type account struct {
	CPUSeconds float64
	Streams    []*loadgen.FixedStream
}

// serve runs a server until its standard input ends, and then writes its account.
func serve(args []string) error {
	tokens, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	defer loadgen.QuietCollector()()
	s, err := loadgen.NewFixedServer(loadgen.FixedPlan{TTFT: firstToken, Gap: tokenGap, Tokens: tokens}, time.Now())
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	raised := loadgen.RaiseProcess() == nil
	if err := out.Encode(hello{URL: s.URL(), Raised: raised}); err != nil {
		return err
	}
	before := cpuSeconds()
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("the client ended: %w", err)
	}
	cpu := cpuSeconds() - before
	if err := s.Close(); err != nil {
		return err
	}
	return out.Encode(account{CPUSeconds: cpu, Streams: s.Streams()})
}

func cpuSeconds() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
