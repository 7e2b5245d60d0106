package loadgen_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"assay/internal/engines/emulated"
	"assay/internal/loadgen"
	"assay/schemas"
)

// emulate serves c in this process and returns its URL, and a function that stops
// it and reads its emission log.
func emulate(t testing.TB, c emulated.Config) (url string, emissions func() (emulated.EmissionHeader, []emulated.Emission)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), fmt.Sprintf("emissions-%d", time.Now().UnixNano()))
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- emulated.Serve(ctx, c, emulated.Options{Listen: "127.0.0.1:0", EmissionLog: file, Ready: func(addr string) { ready <- addr }})
	}()
	select {
	case addr := <-ready:
		url = "http://" + addr
	case err := <-done:
		t.Fatal(err)
	}
	return url, func() (emulated.EmissionHeader, []emulated.Emission) {
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return readEmissions(t, file)
	}
}

func readEmissions(t testing.TB, file string) (h emulated.EmissionHeader, out []emulated.Emission) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 4<<20)
	for first := true; lines.Scan(); first = false {
		if first {
			err = json.Unmarshal(lines.Bytes(), &h)
		} else {
			var e emulated.Emission
			err = json.Unmarshal(lines.Bytes(), &e)
			out = append(out, e)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return h, out
}

// truth puts emissions on the client's clock.
func truth(h emulated.EmissionHeader, list []emulated.Emission, anchor time.Time) []*loadgen.FixedStream {
	shift := h.AnchorUnixNs - anchor.UnixNano()
	var out []*loadgen.FixedStream
	for _, e := range list {
		s := &loadgen.FixedStream{ID: e.RequestID}
		for _, c := range e.Chunks {
			s.Before, s.After = append(s.Before, c.BeforeNs+shift), append(s.After, c.AfterNs+shift)
		}
		out = append(out, s)
	}
	return out
}

// Every true time of emission lies inside the interval that its stamp stands for,
// whatever the shape of the load and however busy the reader.
func TestTrueTimesInsideStamps(t *testing.T) {
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for range 8 {
		shape{
			streams: 1 + rng.IntN(40), tokens: 1 + rng.IntN(40), perChunk: 1 + rng.IntN(3), chat: rng.IntN(2) == 0,
			gap: time.Duration(rng.IntN(3000)) * time.Microsecond,
		}.check(t)
	}
}

type shape struct {
	streams, tokens, perChunk int
	gap                       time.Duration
	chat                      bool
}

func (s shape) check(t *testing.T) {
	model := emulated.Model{Name: "m", PrefillBase: schemas.Duration(2 * time.Millisecond), DecodePerToken: schemas.Duration(s.gap), MaxModelLen: 4096}
	url, emissions := emulate(t, emulated.Config{Models: []emulated.Model{model}, TimeScale: 1, TokensPerChunk: s.perChunk})
	opts := loadgen.Options{BaseURL: url, RequestIDs: true, Anchor: time.Now().Add(30 * time.Millisecond), Held: true}
	if s.chat {
		opts.API = loadgen.APIChat
	}
	for i := range s.streams {
		opts.Requests = append(opts.Requests, loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{
			Index: i, ID: fmt.Sprintf("r%d", i), Model: "m", InputTokens: 4, OutputTokens: s.tokens, AtNs: int64(i) * 100_000}})
	}
	var recs []schemas.RequestRecord
	if err := loadgen.Run(context.Background(), opts, func(r schemas.RequestRecord) error { recs = append(recs, r); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if r.Outcome != schemas.OutcomeOK || r.StampSource != loadgen.StampKernel {
			t.Errorf("%+v: request %s: %s %q, stamps by %s", s, r.ID, r.Outcome, r.Error, r.StampSource)
		}
	}
	h, list := emissions()
	e := loadgen.Compare(recs, truth(h, list, opts.Anchor))
	// The engine logs when its write returned. Where this test was slow to read,
	// and so to acknowledge, its kernel may have sent later: then, and only then, a
	// stamp is after the log's time.
	if e.Missing > 0 || e.Early > 0 || e.Outside > e.Stamps/50 || e.Stamps == 0 {
		t.Errorf("%+v: %d streams missing, %d of %d true times outside their stamps, %d after them", s, e.Missing, e.Outside, e.Stamps, e.Early)
	}
	t.Logf("%+v: %d stamps, %d shared", s, e.Stamps, e.Shared)
}

func TestCalibrate(t *testing.T) {
	for _, user := range []bool{false, true} {
		c, err := loadgen.Calibrate(context.Background(), loadgen.CalibrationPlan{
			FixedPlan: loadgen.FixedPlan{TTFT: 5 * time.Millisecond, Gap: 2 * time.Millisecond, Tokens: 20}, Streams: 10, Spread: 20 * time.Millisecond, UserStamps: user})
		if err != nil {
			t.Fatal(err)
		}
		want := loadgen.StampUser
		if !user {
			want = loadgen.StampKernel
			if c.Outside > 0 {
				t.Errorf("%d true times outside their stamps", c.Outside)
			}
		}
		if c.Stamps != 200 || c.StampSource != want || c.TTFTMs.N != 10 || c.TTFTMs.P50 <= 0 {
			t.Errorf("got %+v", c)
		}
		t.Logf("%+v", *c)
	}
}
