package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"assay/internal/loadgen"
	"assay/schemas"
)

// startSpread is the time over which the streams of a run start, unless told
// otherwise.
const startSpread = time.Second

// row is what one run found. Errors are milliseconds.
type row struct {
	Streams, Tokens        int
	User, Predial          bool
	TTFTMean               float64 // stamp of the first token, less its write
	TTFTP99, TTFTMax       float64
	TTFTOver               float64 // mean TTFT as measured, less what the server was to take
	GapMean                float64
	GapP99, GapMax         float64
	Shared                 float64 // share of stamps
	Outside, Stamps, Held  int64
	NotOK                  int
	ClientCPU, ServerCPU   float64
	PeakRSSMiB             float64
	ServerLateP99, LateP99 float64
	Verdict                schemas.ClientVerdict
	// Reported is what a result would say of each stream, Truth what the server did.
	Reported struct{ TTFT, ITL spread }
	Truth    truth
}

// measureOnce is the client's process: one run, its row on standard output.
func measureOnce(ctx context.Context, args []string) error {
	var r row
	set := flag.NewFlagSet("measure", flag.ContinueOnError)
	set.IntVar(&r.Streams, "streams", 1, "")
	set.IntVar(&r.Tokens, "tokens", 100, "")
	set.BoolVar(&r.User, "user", false, "")
	set.BoolVar(&r.Predial, "predial", false, "")
	startOver := set.Duration("spread", startSpread, "")
	if err := set.Parse(args); err != nil {
		return err
	}
	server, err := startServer(ctx, r.Tokens)
	if err != nil {
		return err
	}
	defer server.stop()
	recs, anchor, err := r.send(ctx, server.url, *startOver)
	if err != nil {
		return err
	}
	truth, err := server.account()
	if err != nil {
		return err
	}
	r.ServerCPU, r.Truth = truth.CPUSeconds, truthOf(truth)
	r.report(recs)
	r.compare(recs, truth.Streams, anchor)
	return json.NewEncoder(os.Stdout).Encode(r)
}

// send runs the load.
func (r *row) send(ctx context.Context, url string, startOver time.Duration) ([]schemas.RequestRecord, time.Time, error) {
	opts := loadgen.Options{BaseURL: url, UserStamps: r.User, RequestIDs: true, MaxConnections: r.Streams + 8}
	if r.Predial {
		pool, err := loadgen.Predial(ctx, url, r.Streams, 0)
		if err != nil {
			pool.Close() // what was dialled before the error
			return nil, time.Time{}, err
		}
		defer pool.Close()
		opts.Pool = pool
	}
	for i := range r.Streams {
		opts.Requests = append(opts.Requests, loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{
			Index: i, ID: fmt.Sprintf("s%d", i), Model: "fixed", InputTokens: 16, OutputTokens: r.Tokens, AtNs: int64(startOver) * int64(i) / int64(r.Streams)}})
	}
	recs := make([]schemas.RequestRecord, 0, r.Streams)
	defer loadgen.QuietCollector()()
	before := cpuSeconds()
	opts.Watch = loadgen.NewWatch()
	opts.Anchor = time.Now().Add(100 * time.Millisecond)
	var tally loadgen.StampTally
	err := loadgen.Run(ctx, opts, func(rec schemas.RequestRecord) error {
		recs = append(recs, rec)
		return nil
	})
	r.ClientCPU = cpuSeconds() - before
	r.PeakRSSMiB = peakRSSMiB()
	opts.Watch.Stop(&r.Verdict)
	for i := range recs {
		tally.Add(&recs[i])
	}
	tally.Judge(&r.Verdict)
	return recs, opts.Anchor, err
}

// compare holds the records against the server's account, moved to the client's
// clock: both processes know their anchor on the wall clock.
func (r *row) compare(recs []schemas.RequestRecord, truth []*loadgen.FixedStream, anchor time.Time) {
	var late []int64
	wall := loadgen.WallAnchor(anchor)
	for _, s := range truth {
		shift := s.AnchorUnixNs - wall
		for i := range s.Before {
			s.Before[i] += shift
			s.After[i] += shift
		}
		late = append(late, s.LateByNs)
	}
	e := loadgen.Compare(recs, truth)
	r.Stamps, r.Outside, r.NotOK = e.Stamps, e.Outside, e.Missing
	r.Held = e.Held
	r.Shared = float64(e.Shared) / float64(max(e.Stamps, 1))
	r.TTFTMean, r.TTFTP99, r.TTFTMax = summary(e.TTFT)
	r.GapMean, r.GapP99, r.GapMax = summary(e.Gaps)
	_, r.ServerLateP99, _ = summary(late)
	if v := r.Verdict.LatenessMs; v != nil {
		r.LateP99 = v.P99
	}
	var over []int64
	for i := range recs {
		if recs[i].FirstTokenNs != nil {
			over = append(over, *recs[i].FirstTokenNs-*recs[i].DispatchedNs-int64(firstToken))
		}
	}
	r.TTFTOver, _, _ = summary(over)
}

// report is each stream's latencies as the records have them.
func (r *row) report(recs []schemas.RequestRecord) {
	var ttft, itl []float64
	for _, rec := range recs {
		if n := len(rec.Chunks); n > 1 {
			ttft = append(ttft, float64(*rec.FirstTokenNs-*rec.DispatchedNs)/1e6)
			itl = append(itl, float64(rec.Chunks[n-1].AtNs-rec.Chunks[0].AtNs)/1e6/float64(n-1))
		}
	}
	if len(ttft) > 0 {
		r.Reported.TTFT, r.Reported.ITL = spreadOf(ttft), spreadOf(itl)
	}
}

func peakRSSMiB() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	return 0
}

// child is a server's process.
type child struct {
	cmd *exec.Cmd
	in  interface {
		Write([]byte) (int, error)
		Close() error
	}
	out *json.Decoder
	url string
}

func startServer(ctx context.Context, tokens int) (*child, error) {
	return startPart(ctx, "serve", fmt.Sprint(tokens))
}

// startPart starts a server that is a part of this command.
func startPart(ctx context.Context, part ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, exe, part...)}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	c.in, c.out = in, json.NewDecoder(out)
	var h hello
	if err := c.out.Decode(&h); err != nil {
		return nil, errors.Join(fmt.Errorf("the server did not say where it listens: %w", err), c.cmd.Wait())
	}
	c.url = h.URL
	return c, nil
}

func (c *child) account() (account, error) {
	var a account
	if _, err := c.in.Write([]byte("\n")); err != nil {
		return a, fmt.Errorf("end the server: %w", err)
	}
	if err := c.out.Decode(&a); err != nil {
		return a, fmt.Errorf("the server's account: %w", err)
	}
	return a, nil
}

func (c *child) stop() {
	c.in.Close()
	c.cmd.Wait() //nolint:errcheck // its account is there, or its failure was told
}
