package emulated

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/internal/serving"
	"assay/schemas"
)

const contended = `{"models":[{"name":"a","base":"qwen2.5-7b"},{"name":"b","base":"yi-9b"},{"name":"c","base":"llama2-13b"}],
	"time_scale":%g,"serving":{"policy":%q,"workers":8}}`

func contend(t testing.TB, policy string, scale float64) Config {
	t.Helper()
	c, err := ParseConfig(fmt.Appendf(nil, contended, scale, policy))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// burst is a workload of n requests with this gap.
func burst(n int, gapMs int64) []serving.Request {
	var out []serving.Request
	for i := range n {
		out = append(out, serving.Request{Index: i, Model: (i * i) % 3, AtMs: int64(i) * gapMs, InputTokens: 20 + 37*i%400, OutputTokens: 8 + 13*i%50})
	}
	return out
}

// stamps are when a client had the tokens of a request, after it sent it.
type stamps struct {
	sent   time.Time
	tokens []time.Time
}

// replay sends a workload to an engine in open loop and stamps every token.
func replay(t testing.TB, e *engine, c Config, requests []serving.Request) []stamps {
	t.Helper()
	out := make([]stamps, len(requests))
	var wait sync.WaitGroup
	origin := time.Now().Add(20 * time.Millisecond)
	for i, r := range requests {
		wait.Add(1)
		go func() {
			defer wait.Done()
			prompt := make([]int, r.InputTokens)
			for k := range prompt {
				prompt[k] = k + i
			}
			body := encode(map[string]any{"model": c.Models[r.Model].Name, "prompt": prompt, "max_tokens": r.OutputTokens, "ignore_eos": true, "stream": true, "request_id": fmt.Sprint(i)})
			waitUntil(context.Background(), origin.Add(time.Duration(float64(r.AtMs)*1e6/c.TimeScale)))
			out[i].sent = time.Now()
			resp, err := e.client.Post(e.url+"/v1/completions", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b, _ := io.ReadAll(resp.Body)
				t.Errorf("request %d: status %d: %s", i, resp.StatusCode, b)
				return
			}
			out[i].tokens = stampTokens(t, resp.Body)
		}()
	}
	wait.Wait()
	return out
}

// stampTokens reads a stream of one token an event.
func stampTokens(t testing.TB, r io.Reader) []time.Time {
	var out []time.Time
	var held []byte
	b := make([]byte, 32<<10)
	for {
		n, err := r.Read(b)
		at := time.Now()
		held = append(held, b[:n]...)
		for {
			event, rest, ok := bytes.Cut(held, []byte("\n\n"))
			if !ok {
				break
			}
			held = rest
			if bytes.Contains(event, []byte(`"text":"`)) && !bytes.Contains(event, []byte(`"text":""`)) {
				out = append(out, at)
			}
		}
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Error(err)
			return out
		}
	}
}

// simulated are the times of every token that a simulation gives.
func simulated(t testing.TB, c Config, requests []serving.Request) [][]int64 {
	t.Helper()
	cfg, err := c.System()
	if err != nil {
		t.Fatal(err)
	}
	in := serving.Input{Models: c.bases(), Requests: requests, IDs: make([]string, len(requests))}
	out := make([][]int64, len(requests))
	if _, err := serving.Simulate(context.Background(), in, cfg, schemas.SLO{TTFTMs: 10_000, TPOTMs: 100}, func(o serving.Outcome) error {
		if !o.Finished {
			return fmt.Errorf("request %d: %s", o.Index, o.Why)
		}
		out[o.Index] = slices.Clone(o.TokensMs)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// latencies are the mean TTFT and TPOT in milliseconds of the system's time.
func latencies(of [][]float64) (ttft, tpot float64) {
	n := 0
	for _, times := range of {
		ttft += times[0] / float64(len(of))
		if k := len(times) - 1; k > 0 {
			tpot += (times[k] - times[0]) / float64(k)
			n++
		}
	}
	return ttft, tpot / float64(n)
}

// agree compares what a client saw with a simulation: of the arrivals as they were
// taken in, which must be exact however busy the machine is, and, if within is not
// 0, of the workload as it was written.
func agree(t *testing.T, c Config, requests []serving.Request, within float64) {
	t.Helper()
	e := serve(t, c)
	e.client.Timeout = 3 * time.Minute
	seen := replay(t, e, c, requests)
	if t.Failed() {
		t.FailNow()
	}
	taken := checkEmissions(t, e, c, requests, seen)
	if within == 0 {
		return
	}
	want := simulated(t, c, requests)
	var client, model [][]float64
	for i, s := range seen {
		var c1, m1 []float64
		for k, at := range s.tokens {
			c1 = append(c1, float64(at.Sub(s.sent))/1e6*c.TimeScale)
			m1 = append(m1, float64(want[i][k]-requests[i].AtMs))
		}
		client, model = append(client, c1), append(model, m1)
	}
	gotTTFT, gotTPOT := latencies(client)
	wantTTFT, wantTPOT := latencies(model)
	t.Logf("TTFT %.2f ms measured, %.2f ms simulated; TPOT %.3f ms measured, %.3f ms simulated", gotTTFT, wantTTFT, gotTPOT, wantTPOT)
	for _, d := range []struct {
		what      string
		got, want float64
	}{{"TTFT", gotTTFT, wantTTFT}, {"TPOT", gotTPOT, wantTPOT}} {
		if math.Abs(d.got-d.want) > within*d.want {
			t.Errorf("%s: %.3f ms measured, %.3f ms simulated: %.1f %% apart", d.what, d.got, d.want, 100*(d.got/d.want-1))
		}
	}
	checkOrder(t, taken, want)
}

// checkOrder: requests whose first tokens are well apart in the simulation have them
// in the same order.
func checkOrder(t *testing.T, got, want [][]int64) {
	t.Helper()
	const apartMs = 100
	swapped, pairs := 0, 0
	for i := range want {
		for k := range want {
			if want[i][0]+apartMs > want[k][0] {
				continue
			}
			pairs++
			if got[i][0] >= got[k][0] {
				swapped++
			}
		}
	}
	if swapped > pairs/50 {
		t.Errorf("%d of %d pairs of requests came in another order than simulated", swapped, pairs)
	}
}

// checkEmissions: tokens are due when a simulation of the arrivals as taken in has
// them, none is written before that or read before it was written, and the log has
// all of them. It returns the times of that simulation.
func checkEmissions(t *testing.T, e *engine, c Config, requests []serving.Request, seen []stamps) [][]int64 {
	t.Helper()
	h, log := e.emissions(t)
	taken, order := slices.Clone(requests), make([]int, len(requests))
	byID := make([]Emission, len(requests))
	for _, em := range log {
		var i int
		if _, err := fmt.Sscan(em.RequestID, &i); err != nil || em.Outcome != "ok" || em.TakenIn == nil {
			t.Fatalf("%+v, %v", em, err)
		}
		byID[i] = em
		taken[i].Index, taken[i].AtMs = em.TakenIn.Index, em.TakenIn.AtMs
		order[em.TakenIn.Index] = i
	}
	slices.SortFunc(taken, func(a, b serving.Request) int { return a.Index - b.Index })
	times := simulated(t, c, taken)
	want := make([][]int64, len(requests))
	var lag time.Duration
	origin, first := int64(0), true
	for index, i := range order {
		want[i] = times[index]
		em := byID[i]
		if len(em.Chunks) != len(want[i]) || len(em.Chunks) != len(seen[i].tokens) {
			t.Fatalf("request %d: %d tokens simulated, %d in the log, %d seen", i, len(want[i]), len(em.Chunks), len(seen[i].tokens))
		}
		for k, chunk := range em.Chunks {
			zero := chunk.DueNs - int64(float64(want[i][k])*1e6/c.TimeScale) // where the system's time began
			if first {
				origin, first = zero, false
			}
			if d := time.Duration(zero - origin); d.Abs() > 10*time.Microsecond {
				t.Fatalf("request %d, token %d is due %s off its simulated time", i, k, d)
			}
			read := seen[i].tokens[k].UnixNano() - h.AnchorUnixNs
			if chunk.BeforeNs < chunk.DueNs || read < chunk.BeforeNs-int64(time.Millisecond) {
				t.Fatalf("request %d, token %d: due %d, written %d, read %d", i, k, chunk.DueNs, chunk.BeforeNs, read)
			}
			lag = max(lag, time.Duration(read-chunk.DueNs))
		}
	}
	t.Logf("all due times are the simulated ones; the latest token was read %s after it was due", lag)
	return want
}

// TestAgreesWithSimulation: through HTTP, on a fast clock, requests have the times
// of a simulation.
func TestAgreesWithSimulation(t *testing.T) {
	for _, policy := range serving.Policies {
		t.Run(policy, func(t *testing.T) { agree(t, contend(t, policy, 4), burst(24, 120), 0) })
	}
}

// TestAgreesForAMinute is the same at the true pace, for a minute, and holds what the
// client saw against the workload as written.
func TestAgreesForAMinute(t *testing.T) {
	if os.Getenv("ASSAY_EXHAUSTIVE") == "" {
		t.Skip("set ASSAY_EXHAUSTIVE=1: three minutes at time_scale 1")
	}
	for _, policy := range serving.Policies {
		t.Run(policy, func(t *testing.T) { agree(t, contend(t, policy, 1), burst(200, 280), 0.05) })
	}
}

// TestFailuresOverHTTP: what the system cannot serve is told as an error.
func TestFailuresOverHTTP(t *testing.T) {
	c := contend(t, serving.PolicyServerlessLLM, 100)
	c.Models[0].MaxModelLen = 1 << 24
	c.Models[1].Undeployed = true
	e := serve(t, c)
	for body, want := range map[string]int{
		`{"model":"a","prompt":"x","max_tokens":1000000,"ignore_eos":true}`: http.StatusBadRequest,
		`{"model":"b","prompt":"x"}`:                                        http.StatusServiceUnavailable,
		`{"model":"c","prompt":"x"}`:                                        http.StatusOK,
	} {
		resp, b, err := e.post(t, "/v1/completions", body)
		if err != nil || resp.StatusCode != want || (want != 200 && !strings.Contains(string(b), `"error"`)) {
			t.Errorf("%s: %v, %v: %s", body, resp, err, b)
		}
	}
}

// TestClientGoesFromSystem: a request whose client has gone is cancelled in the system.
func TestClientGoesFromSystem(t *testing.T) {
	e := serve(t, contend(t, serving.PolicyServerlessLLM, 1))
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+"/v1/completions", strings.NewReader(`{"model":"a","prompt":"x","max_tokens":5000,"ignore_eos":true,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	resp.Body.Close()
	b := e.ok(t, "/v1/completions", `{"model":"a","prompt":"y","max_tokens":2,"ignore_eos":true}`)
	if !strings.Contains(string(b), `"completion_tokens":2`) {
		t.Errorf("the next request: %s", b)
	}
	_, log := e.emissions(t)
	if len(log) != 2 || log[0].Outcome != "disconnected" || log[1].Outcome != "ok" {
		t.Errorf("%+v", log)
	}
}
