package measure

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/internal/engines/emulated"
	"assay/internal/serving"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// twinModels are as many as there are places of base models.
const twinModels = 10

// twinWorkload has a request every gap for as long, each with a prompt length of its
// own, by which it is found again.
func twinWorkload(span, gap time.Duration) string {
	var b strings.Builder
	b.WriteString("Request Time,Model Name,Input Length,Output Length\r\n")
	for i := range int(span / gap) {
		at := time.Duration(i) * gap
		model := i // models appear in the order of their names
		if i >= twinModels {
			model = (i*i + i/7) % twinModels
		}
		fmt.Fprintf(&b, "00:00:%02d.%03d,m%d,%d,%d\r\n", int(at.Seconds()), at.Milliseconds()%1000, model, 20+3*i, 8+13*i%60)
	}
	return b.String()
}

// twin is an engine that requests contend for, and its emission log.
func twin(t *testing.T, policy string, scale float64) (view pipeline.ServiceView, cfg emulated.Config, log func() []emulated.Emission) {
	t.Helper()
	keys := map[string]any{"time_scale": scale, "serving": map[string]any{"policy": policy, "workers": 8}}
	var models []any
	for i := range twinModels {
		models = append(models, map[string]any{"name": fmt.Sprintf("m%d", i)})
	}
	keys["models"] = models
	cfg, err := emulated.FromMap(keys)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "emissions.jsonl")
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- emulated.Serve(ctx, cfg, emulated.Options{Listen: "127.0.0.1:0", EmissionLog: file, Log: io.Discard, Ready: func(a string) { ready <- a }})
	}()
	t.Cleanup(func() { cancel(); <-done })
	view = pipeline.ServiceView{Name: "engine", Engine: "emulated", Emulated: true, Done: done, Dead: func() string { return "" }}
	select {
	case a := <-ready:
		view.URL = "http://" + a
	case err := <-ended:
		t.Fatal(err)
	}
	for _, m := range cfg.Models {
		view.Models = append(view.Models, m.Name)
	}
	return view, cfg, func() []emulated.Emission {
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out []emulated.Emission
		lines := bufio.NewScanner(bytes.NewReader(b))
		lines.Buffer(nil, 4<<20)
		for n := 0; lines.Scan(); n++ {
			var e emulated.Emission
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				out = append(out, e)
			}
		}
		return out
	}
}

// TestTwin: through HTTP, a measured engine has the latencies that a simulation of
// the same workload gives, and its log of emissions is what the client stamped. When
// asked for, a minute at the true pace, within 5 %; else a short one, held against a
// simulation of the arrivals as they were taken in, since a busy machine is late.
func TestTwin(t *testing.T) {
	span, gap, scale, exhaustive := time.Second, 60*time.Millisecond, 4.0, os.Getenv("ASSAY_EXHAUSTIVE") != ""
	if exhaustive {
		span, gap, scale = time.Minute, 500*time.Millisecond, 1
	}
	for _, policy := range serving.Policies {
		t.Run(policy, func(t *testing.T) {
			view, cfg, log := twin(t, policy, scale)
			s := newStage(t, &engine{view: view}, twinWorkload(span, gap), map[string]any{"speed": scale, "calibrate": false})
			if err := run(context.Background(), s.task); err != nil {
				t.Fatal(err)
			}
			res := s.result(t)
			if res.Counts.OK != res.Counts.Issued {
				t.Fatalf("%d of %d requests: %v", res.Counts.OK, res.Counts.Issued, res.Counts.Outcomes)
			}
			in, err := serving.ReadInput(s.task.Config["workload"].(string), workload.Options{})
			if err != nil {
				t.Fatal(err)
			}
			emissions := log()
			if !exhaustive {
				in = twinTakenIn(in, emissions)
			}
			ttft, tpot := twinSimulated(t, cfg, in)
			for _, m := range []struct {
				name string
				want float64
			}{{"ttft_ms", ttft}, {"tpot_ms", tpot}} {
				got := *res.Metrics[m.name].Mean * scale
				t.Logf("%s of %d requests: %.2f measured, %.2f simulated, %+.2f %%", m.name, res.Counts.OK, got, m.want, 100*(got/m.want-1))
				if exhaustive && math.Abs(got-m.want) > 0.05*m.want || got < 0.5*m.want || got > 2*m.want+1000 {
					t.Errorf("%s: %.3f measured, %.3f simulated", m.name, got, m.want)
				}
			}
			twinEmissions(t, s.records(t), emissions)
		})
	}
}

// twinTakenIn is a workload with the arrivals as the engine took them in.
func twinTakenIn(in serving.Input, emissions []emulated.Emission) serving.Input {
	taken := map[int]*emulated.TakenIn{}
	for _, e := range emissions {
		taken[e.InputTokens] = e.TakenIn
	}
	requests := slices.Clone(in.Requests)
	for i, r := range requests {
		requests[i].AtMs, requests[i].Index = taken[r.InputTokens].AtMs, taken[r.InputTokens].Index
	}
	slices.SortFunc(requests, func(a, b serving.Request) int { return a.Index - b.Index })
	in.Requests = requests
	return in
}

// twinSimulated are the mean TTFT and TPOT of a simulation, in milliseconds.
func twinSimulated(t *testing.T, cfg emulated.Config, in serving.Input) (ttft, tpot float64) {
	t.Helper()
	system, err := cfg.System()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	res, err := serving.Simulate(context.Background(), in, system, schemas.SLO{TTFTMs: 1e4, TPOTMs: 100}, func(o serving.Outcome) error {
		if !o.Finished {
			return fmt.Errorf("request %d: %s", o.Index, o.Why)
		}
		ttft += float64(o.TokensMs[0] - o.AtMs)
		if k := len(o.TokensMs) - 1; k > 0 {
			tpot += float64(o.TokensMs[k]-o.TokensMs[0]) / float64(k)
			n++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ttft / float64(len(res.Rows)), tpot / float64(n)
}

// twinEmissions: a request's tokens were stamped as far apart as they were written,
// and the first as long after it was sent.
func twinEmissions(t *testing.T, records map[string]schemas.RequestRecord, log []emulated.Emission) {
	t.Helper()
	type key struct {
		model string
		input int
	}
	emitted := map[key]emulated.Emission{}
	for _, e := range log {
		emitted[key{e.Model, e.InputTokens}] = e
	}
	var apart []time.Duration
	for id, r := range records {
		e, ok := emitted[key{r.Model, r.AskedInputTokens}]
		if !ok || e.Outcome != "ok" || len(e.Chunks) != len(r.Chunks) {
			t.Fatalf("request %s has %d chunks, the engine logged %d (%q)", id, len(r.Chunks), len(e.Chunks), e.Outcome)
		}
		for k, c := range e.Chunks {
			if c.BeforeNs < c.DueNs {
				t.Fatalf("request %s: token %d was written before its time", id, k)
			}
			written, stamped := c.BeforeNs-e.ArrivedNs, r.Chunks[k].AtNs-*r.DispatchedNs
			apart = append(apart, time.Duration(stamped-written).Abs())
		}
	}
	slices.Sort(apart)
	median, p99 := apart[len(apart)/2], apart[len(apart)*99/100]
	t.Logf("%d tokens: stamped and written %s apart in the median, %s at the 99th percentile", len(apart), median, p99)
	if median > 100*time.Millisecond {
		t.Errorf("the client's stamps and the engine's log are %s apart in the median", median)
	}
}
