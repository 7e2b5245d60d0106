package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"assay/internal/loadgen"
	"assay/schemas"
)

// The clients whose rates are held against each other.
const (
	rateOurs    = "assay"    // everything: schedule, records of every stamp, verdict
	rateNetHTTP = "net/http" // a loop around http.Transport that reads the answers and keeps nothing
	rateRaw     = "raw"      // a loop that writes the same bytes and counts those of the answers
)

// rateRow is one closed loop of short answers in one piece.
type rateRow struct {
	Client       string
	Connections  int
	Requests     int
	Seconds      float64
	CPU, Server  float64
	PeakRSSMiB   float64
	PerSecond    float64
	MicrosClient float64 // processor time a request
}

const wholeAnswer = `{"id":"c","object":"text_completion","choices":[{"index":0,"text":"token token token","finish_reason":"length"}],"usage":{"prompt_tokens":16,"completion_tokens":3}}`

// serveWhole answers requests with the same bytes until its standard input ends.
func serveWhole() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(hello{URL: "http://" + ln.Addr().String()}); err != nil {
		return err
	}
	before := cpuSeconds()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go answerWhole(conn)
		}
	}()
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("the client ended: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(account{CPUSeconds: cpuSeconds() - before})
}

// answerWhole knows that every request of the benchmark ends with a brace, and
// holds no other before the end of a packet: it is to cost as little as can be.
func answerWhole(conn net.Conn) {
	defer conn.Close()
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(wholeAnswer), wholeAnswer)
	buf := make([]byte, 8<<10)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		if buf[n-1] != '}' {
			continue
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// rateOnce is a client's process.
func rateOnce(ctx context.Context, args []string) error {
	r := rateRow{}
	set := flag.NewFlagSet("rate", flag.ContinueOnError)
	set.StringVar(&r.Client, "client", rateOurs, "")
	set.IntVar(&r.Connections, "connections", 64, "")
	set.IntVar(&r.Requests, "requests", 100_000, "")
	if err := set.Parse(args); err != nil {
		return err
	}
	server, err := startPart(ctx, "serve-whole")
	if err != nil {
		return err
	}
	defer server.stop()
	defer loadgen.QuietCollector()()
	before, started := cpuSeconds(), time.Now()
	switch r.Client {
	case rateOurs:
		err = r.ours(ctx, server.url)
	case rateNetHTTP:
		err = r.each(func(left *atomic.Int64) error { return loopNetHTTP(ctx, server.url, left) })
	default:
		err = r.each(func(left *atomic.Int64) error { return loopRaw(server.url, left) })
	}
	if err != nil {
		return err
	}
	r.Seconds, r.CPU, r.PeakRSSMiB = time.Since(started).Seconds(), cpuSeconds()-before, peakRSSMiB()
	truth, err := server.account()
	if err != nil {
		return err
	}
	r.Server = truth.CPUSeconds
	r.PerSecond = float64(r.Requests) / r.Seconds
	r.MicrosClient = r.CPU / float64(r.Requests) * 1e6
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (r *rateRow) ours(ctx context.Context, url string) error {
	opts := loadgen.Options{BaseURL: url, Whole: true, Concurrency: r.Connections, Anchor: time.Now(), NormalPriority: true}
	opts.Requests = make([]loadgen.Request, r.Requests)
	for i := range opts.Requests {
		opts.Requests[i].ScheduledRequest = schemas.ScheduledRequest{Index: i, ID: "r", Model: "fixed", InputTokens: 16, OutputTokens: 3}
	}
	failed := 0
	err := loadgen.Run(ctx, opts, func(rec schemas.RequestRecord) error {
		if rec.Outcome != schemas.OutcomeOK {
			failed++
		}
		return nil
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d requests failed", failed, r.Requests)
	}
	return err
}

// each runs one loop for each connection.
func (r *rateRow) each(loop func(left *atomic.Int64) error) error {
	var left atomic.Int64
	left.Store(int64(r.Requests))
	errs := make(chan error, r.Connections)
	var all sync.WaitGroup
	for range r.Connections {
		all.Go(func() { errs <- loop(&left) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

const wholeRequest = `{"model":"fixed","prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"max_tokens":3,"stream":false,"temperature":0}`

func loopNetHTTP(ctx context.Context, url string, left *atomic.Int64) error {
	transport := &http.Transport{MaxIdleConnsPerHost: 1, DisableCompression: true}
	defer transport.CloseIdleConnections()
	for left.Add(-1) >= 0 {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/completions", strings.NewReader(wholeRequest))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d, %w", resp.StatusCode, err)
		}
	}
	return nil
}

func loopRaw(url string, left *atomic.Int64) error {
	host := strings.TrimPrefix(url, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		return err
	}
	defer conn.Close()
	req := fmt.Appendf(nil, "POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", host, len(wholeRequest), wholeRequest)
	buf := make([]byte, 8<<10)
	for left.Add(-1) >= 0 {
		if _, err := conn.Write(req); err != nil {
			return err
		}
		for n := 0; !bytes.HasSuffix(buf[:n], []byte("}")); {
			got, err := conn.Read(buf[n:])
			if err != nil {
				return err
			}
			n += got
		}
	}
	return nil
}

// rates prints how many short requests a second each client gets through, in
// alternated runs.
func rates(ctx context.Context, rounds int) error {
	fmt.Printf("\nshort answers in one piece, closed loop, 100,000 requests, server and client on the same processors; the run with the median rate of %d\n", rounds)
	fmt.Printf("%11s %-9s | %9s %8s | %10s %10s | %5s\n", "connections", "client", "req/s", "of raw", "client us", "server us", "MiB")
	for _, n := range []int{16, 64, 256} {
		rows := map[string][]rateRow{}
		clients := []string{rateOurs, rateNetHTTP, rateRaw}
		for range rounds {
			for _, client := range clients {
				var r rateRow
				if err := inOwnProcess(ctx, &r, "rate", "-client="+client, fmt.Sprintf("-connections=%d", n)); err != nil {
					return err
				}
				rows[client] = append(rows[client], r)
			}
		}
		rate := func(r rateRow) float64 { return r.PerSecond }
		raw := middle(rows[rateRaw], rate)
		for _, client := range clients {
			r := middle(rows[client], rate)
			fmt.Printf("%11d %-9s | %9.0f %7.0f%% | %10.1f %10.1f | %5.0f\n", n, client, r.PerSecond, 100*r.PerSecond/raw.PerSecond, r.MicrosClient, r.Server/float64(r.Requests)*1e6, r.PeakRSSMiB)
		}
	}
	return nil
}
