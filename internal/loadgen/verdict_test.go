package loadgen

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

// record is one of n tokens a millisecond apart, sent late.
func record(n int, late int64, source string) schemas.RequestRecord {
	r := schemas.RequestRecord{StampSource: source, ScheduledNs: 0, DispatchedNs: at(late), EndNs: late + int64(n+10)*1e6}
	for i := range n {
		r.Chunks = append(r.Chunks, schemas.Chunk{AtNs: late + int64(i+5)*1e6})
	}
	if n > 0 {
		r.FirstTokenNs = at(r.Chunks[0].AtNs)
	}
	return r
}

func TestJudge(t *testing.T) {
	shared := func(n, of int) schemas.RequestRecord {
		r := record(of, 0, StampKernel)
		for i := range n {
			r.Chunks[2*i+1].SinceNs = at(r.Chunks[2*i+1].AtNs - 2e6)
		}
		return r
	}
	ends := record(20, 0, StampKernel)
	ends.Chunks[19].SinceNs, ends.FinishNs = at(ends.Chunks[18].AtNs), at(ends.Chunks[19].AtNs)
	queued := record(20, 900_000_000, StampKernel)
	queued.QueuedNs = at(100_000)
	lateQueued := record(20, 900_000_000, StampKernel)
	lateQueued.QueuedNs = at(4_000_000)
	exact := &schemas.Calibration{GapMs: schemas.Spread{P99: 0.01}, TTFTMs: schemas.Spread{P99: 0.02}}
	wrong := &schemas.Calibration{GapMs: schemas.Spread{P99: 7}}
	for _, c := range []struct {
		name        string
		recs        []schemas.RequestRecord
		calibration *schemas.Calibration
		want, why   string
		errorMs     float64 // -1: none
	}{
		{"good", []schemas.RequestRecord{record(20, 200_000, StampKernel)}, nil, ClientOK, "", 0.2},
		{"late", []schemas.RequestRecord{record(20, 3_000_000, StampKernel)}, nil, ClientNotOK, "left late", 3},
		{"held by a cap", []schemas.RequestRecord{queued}, nil, ClientOK, "", 0.1},
		{"late and held by a cap", []schemas.RequestRecord{lateQueued}, nil, ClientNotOK, "left late: p99 4 ms", 4},
		{"few shared", []schemas.RequestRecord{shared(1, 200)}, nil, ClientOK, "", 0},
		{"many shared", []schemas.RequestRecord{shared(20, 200)}, nil, ClientNotOK, "shared by several events", 2},
		{"shared with the end", []schemas.RequestRecord{ends}, nil, ClientOK, "", 0},
		{"user stamps", []schemas.RequestRecord{record(20, 0, StampUser)}, nil, ClientUnknown, "no calibration", -1},
		{"user stamps, calibrated", []schemas.RequestRecord{record(20, 0, StampUser)}, exact, ClientOK, "", 0.02},
		{"badly calibrated", []schemas.RequestRecord{record(20, 0, StampKernel)}, wrong, ClientNotOK, "off by 7 ms", 7},
		{"nothing sent", []schemas.RequestRecord{{StampSource: StampUser}}, nil, ClientUnknown, "no request was sent", -1},
		{"no token", []schemas.RequestRecord{record(0, 0, StampUser)}, nil, ClientUnknown, "no token event", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tally StampTally
			for i := range c.recs {
				tally.Add(&c.recs[i])
			}
			v := schemas.ClientVerdict{Calibration: c.calibration}
			tally.Judge(&v)
			why := strings.Join(v.Reasons, "; ")
			if v.OK != c.want || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
				t.Errorf("got %s: %q, want %s: %q", v.OK, why, c.want, c.why)
			}
			if got := v.ErrorMs; (got == nil) != (c.errorMs < 0) || got != nil && (*got < c.errorMs*0.99 || *got > c.errorMs*1.13) {
				t.Errorf("error estimate %v, want %v ms", got, c.errorMs)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	w := NewWatch()
	url := serve(t, streamOf(answerOf(30)...))
	c := newClient(t, Options{BaseURL: url, Watch: w})
	for i := range 20 {
		if r := c.Do(context.Background(), request(i, 30)); r.Outcome != schemas.OutcomeOK {
			t.Fatal(r.Error)
		}
	}
	runtime.GC()
	var v schemas.ClientVerdict
	w.Stop(&v)
	if v.GCCycles < 1 || v.GCPauseMs == nil || v.SchedLatencyMs == nil || v.CPUCores == nil || *v.CPUCores <= 0 || v.CPUs < 1 {
		t.Errorf("got %+v", v)
	}
	if runtime.GOOS == "linux" && (v.ReadLagMs == nil || v.ReadLagMs.N < 20 || v.ReadLagMs.P50 <= 0) {
		t.Errorf("read lag %+v", v.ReadLagMs)
	}
}

func TestQuietCollectorPutsBack(t *testing.T) {
	restore := QuietCollector()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 2000 {
		_ = make([]byte, 16<<10)
	}
	runtime.ReadMemStats(&after)
	if after.NumGC != before.NumGC {
		t.Errorf("collected %d times within the headroom", after.NumGC-before.NumGC)
	}
	restore()
	again := QuietCollector()
	again()
	runtime.ReadMemStats(&before)
	sink := [][]byte{}
	for range 8000 {
		sink = append(sink[:0], make([]byte, 16<<10))
	}
	runtime.KeepAlive(sink)
	if runtime.ReadMemStats(&after); after.NumGC == before.NumGC {
		t.Error("the collector never ran again")
	}
}

// Under TLS, and where the option says so, stamps are those of the read, and the
// record says that.
func TestUserStamps(t *testing.T) {
	server := httptest.NewTLSServer(streamOf(answerOf(3)...))
	t.Cleanup(server.Close)
	plain := serve(t, streamOf(answerOf(3)...))
	for name, opts := range map[string]Options{"tls": {BaseURL: server.URL}, "asked for": {BaseURL: plain, UserStamps: true}} {
		c := newClient(t, opts)
		if name == "tls" {
			c.http.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		}
		r := c.Do(context.Background(), request(0, 3))
		proper(t, r)
		if r.Outcome != schemas.OutcomeOK || r.StampSource != StampUser || len(r.Chunks) != 3 {
			t.Errorf("%s: %s %q, stamps by %s", name, r.Outcome, r.Error, r.StampSource)
		}
	}
}

func TestPredial(t *testing.T) {
	url := serve(t, streamOf(answerOf(3)...))
	pool, err := Predial(context.Background(), url, 5, time.Second)
	if err != nil || pool.Len() != 5 {
		t.Fatalf("%d connections, %v", pool.Len(), err)
	}
	t.Cleanup(pool.Close)
	c := newClient(t, Options{BaseURL: url, Pool: pool})
	for i := range 2 { // the second reuses the first's
		if r := c.Do(context.Background(), request(i, 3)); r.Outcome != schemas.OutcomeOK || *r.ConnReused != (i > 0) || pool.Len() != 0 {
			t.Errorf("%s %q, reused %v, %d connections that the client did not take", r.Outcome, r.Error, *r.ConnReused, pool.Len())
		}
	}
	pool, err = Predial(context.Background(), "http://"+closedPort(t), 3, time.Second)
	if err == nil || pool.Len() != 0 {
		t.Errorf("%d connections to a closed port, %v", pool.Len(), err)
	}
	if _, err := Predial(context.Background(), "ftp://h", 1, 0); err == nil {
		t.Error("a URL that is none was dialled")
	}
}

// A connection that the server closed while it waited is not used.
func TestPredialledConnectionsThatDied(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can tell")
	}
	server := httptest.NewServer(streamOf(answerOf(3)...))
	pool, err := Predial(context.Background(), server.URL, 3, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	server.CloseClientConnections()
	server.Close()
	for deadline := time.Now().Add(5 * time.Second); alive(pool.spare[0].raw) && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if conn := pool.take(pool.addr); conn != nil {
		t.Error("a closed connection was handed out")
	}
}

func TestShape(t *testing.T) {
	var s Shape
	if _, why := s.Plan(); why == "" {
		t.Error("a calibration of nothing")
	}
	for i := range 10 {
		r := record(100, int64(i)*50e6, StampKernel)
		s.Add(&r)
	}
	if s.Peak() != 3 { // each lasts 110 ms, one begins every 50
		t.Errorf("peak %d", s.Peak())
	}
	if _, why := s.Plan(); !strings.Contains(why, "too short") {
		t.Errorf("a calibration of half a second: %q", why)
	}
	r := record(100, 30e9, StampKernel)
	s.Add(&r)
	p, why := s.Plan()
	total := p.TTFT + p.Spread + time.Duration(p.Tokens)*p.Gap
	if why != "" || p.Streams != 3 || p.Gap < time.Millisecond || p.Gap > 1200*time.Microsecond || total > 1100*time.Millisecond || p.Tokens < 2 {
		t.Errorf("%+v, %q", p, why)
	}
}
