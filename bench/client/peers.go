package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// peerLimit is how long one run of another client may take.
const peerLimit = 5 * time.Minute

// spread is what a client reported of one latency, ms.
type spread struct{ Mean, P99 float64 }

// peer is another load client, installed below a directory by peers.sh.
type peer struct {
	name string
	bin  string
	args func(url, dir string, streams int) []string
	read func(dir string) (ttft, itl spread, err error)
}

// peers runs other clients, and this one, against servers of their own, all streams
// at once, and holds what they report against what the servers noted.
func peers(ctx context.Context, streams []int) error {
	home := os.Getenv("BENCH_PEERS")
	if home == "" {
		return fmt.Errorf("BENCH_PEERS names no directory; bench/client/peers.sh makes one")
	}
	fmt.Println("\nthe same shape, every stream begun at once, connections made then (predialled: this client, made before); what each client reports, less what the server noted, ms")
	fmt.Printf("%7s %-10s | %9s %9s %9s | %9s %9s | %8s\n", "streams", "client", "TTFT mean", "less 50", "TTFT p99", "ITL mean", "ITL p99", "srv late")
	for _, n := range streams {
		if err := ownRow(ctx, n); err != nil {
			return err
		}
		for _, p := range []peer{aiperf(home), guidellm(home)} {
			if _, err := os.Stat(p.bin); err != nil {
				fmt.Printf("%7d %-10s | not installed\n", n, p.name)
				continue
			}
			if err := p.row(ctx, n); err != nil {
				fmt.Printf("%7d %-10s | %v\n", n, p.name, err)
			}
		}
	}
	return nil
}

// ownRow is this client, without and with connections made before.
func ownRow(ctx context.Context, n int) error {
	for _, predial := range []bool{false, true} {
		var r row
		if err := inOwnProcess(ctx, &r, "measure", "-streams", fmt.Sprint(n), "-spread", "0s", fmt.Sprintf("-predial=%v", predial)); err != nil {
			return err
		}
		name := "assay"
		if predial {
			name = "predialled"
		}
		printPeer(n, name, r.Reported.TTFT, r.Reported.ITL, r.Truth)
	}
	return nil
}

func (p peer) row(ctx context.Context, n int) error {
	server, err := startServer(ctx, 100)
	if err != nil {
		return err
	}
	defer server.stop()
	dir, err := os.MkdirTemp("", "bench-client-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, peerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bin, p.args(server.url, dir, n)...)
	cmd.Dir = dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(log.Name()) //nolint:errcheck // what it said is only for the error
		return fmt.Errorf("%w: %s", err, said[max(0, len(said)-300):])
	}
	ttft, itl, err := p.read(dir)
	if err != nil {
		return err
	}
	truth, err := server.account()
	if err != nil {
		return err
	}
	printPeer(n, p.name, ttft, itl, truthOf(truth))
	return nil
}

// truth is what a server noted: means over its streams, ms.
type truth struct {
	Streams   int
	TTFT, ITL float64 // from the request's arrival to the first write; between writes
	TTFTP99   float64
	ITLP99    float64 // of the streams' means
}

func truthOf(a account) truth {
	var ttft, itl []int64
	for _, s := range a.Streams {
		if n := len(s.Before); n > 1 && !s.Disconnected {
			ttft = append(ttft, s.Before[0]-s.Arrived)
			itl = append(itl, (s.Before[n-1]-s.Before[0])/int64(n-1))
		}
	}
	t := truth{Streams: len(ttft)}
	t.TTFT, t.TTFTP99, _ = summary(ttft)
	t.ITL, t.ITLP99, _ = summary(itl)
	return t
}

func printPeer(n int, name string, ttft, itl spread, t truth) {
	fmt.Printf("%7d %-10s | %9.3f %9.3f %9.3f | %9.4f %9.4f | %8.3f", n, name, ttft.Mean-t.TTFT, ttft.Mean-ms(firstToken), ttft.P99-t.TTFTP99,
		itl.Mean-t.ITL, itl.P99-t.ITLP99, t.TTFT-ms(firstToken))
	if t.Streams != n {
		fmt.Printf("  (%d streams came)", t.Streams)
	}
	fmt.Println()
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func aiperf(home string) peer {
	return peer{name: "aiperf", bin: filepath.Join(home, "aiperf", "bin", "aiperf"),
		args: func(url, dir string, n int) []string {
			return []string{"profile", "-m", "fixed", "--endpoint-type", "completions", "--streaming", "-u", url, "--tokenizer", filepath.Join(home, "tokenizer"),
				"--concurrency", fmt.Sprint(n), "--request-count", fmt.Sprint(n), "--prompt-input-tokens-mean", "16", "--extra-inputs", "max_tokens:100",
				"--use-server-token-count", "--ui", "none", "--output-artifact-dir", dir}
		},
		read: func(dir string) (ttft, itl spread, err error) {
			type metric struct{ Avg, P99 float64 }
			var doc struct {
				TTFT metric `json:"time_to_first_token"`
				ITL  metric `json:"inter_token_latency"`
			}
			err = readJSON(filepath.Join(dir, "profile_export_aiperf.json"), &doc)
			return spread{doc.TTFT.Avg, doc.TTFT.P99}, spread{doc.ITL.Avg, doc.ITL.P99}, err
		}}
}

func guidellm(home string) peer {
	return peer{name: "guidellm", bin: filepath.Join(home, "guidellm", "bin", "guidellm"),
		args: func(url, dir string, n int) []string {
			return []string{"run", "--backend", "kind=openai_http,target=" + url + ",model=fixed,request_format=/v1/completions",
				"--profile", fmt.Sprintf("kind=concurrent,streams=%d", n), "--constraint", fmt.Sprintf("kind=max_requests,count=%d", n),
				"--tokenizer", "kind=huggingface_auto,model=" + filepath.Join(home, "tokenizer"), "--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=100",
				"--output", "kind=json,path=" + filepath.Join(dir, "report.json"), "--disable-console"}
		},
		read: readGuidellm}
}

func readGuidellm(dir string) (ttft, itl spread, err error) {
	var doc struct {
		Benchmarks []struct {
			Requests struct {
				Successful []struct {
					TTFT float64 `json:"time_to_first_token_ms"`
					ITL  float64 `json:"inter_token_latency_ms"`
				}
			}
		}
	}
	if err := readJSON(filepath.Join(dir, "report.json"), &doc); err != nil || len(doc.Benchmarks) == 0 {
		return ttft, itl, fmt.Errorf("report.json: no benchmark, %w", err)
	}
	var a, b []float64
	for _, r := range doc.Benchmarks[0].Requests.Successful {
		a, b = append(a, r.TTFT), append(b, r.ITL)
	}
	return spreadOf(a), spreadOf(b), nil
}

// spreadOf is the mean and the 99th percentile by nearest rank.
func spreadOf(all []float64) spread {
	if len(all) == 0 {
		return spread{math.NaN(), math.NaN()}
	}
	slices.Sort(all)
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return spread{sum / float64(len(all)), all[(len(all)*99+99)/100-1]}
}

func readJSON(file string, to any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, to)
}
