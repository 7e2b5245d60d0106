package observe

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"assay/schemas"
)

func metricsOnly(url string) Options {
	c := quiet()
	c.Metrics = schemas.ObserveOn
	return Options{Config: c, URL: url, Subject: "stage s"}
}

func TestMetricsAreSummedUp(t *testing.T) {
	var n atomic.Int64
	url := service(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("compression was asked for")
		}
		i := min(n.Add(1), 3)
		fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{e=\"0\"} %d\nvllm:num_requests_running{e=\"1\"} 1\n", 2*i)
		fmt.Fprintf(w, "vllm:kv_cache_usage_perc{e=\"0\"} 0.%d\nvllm:kv_cache_usage_perc{e=\"1\"} 0.1\n", i)
		fmt.Fprintf(w, "vllm:prompt_tokens_total %d\nvllm:prefix_cache_queries_total %d\nvllm:prefix_cache_hits_total %d\n", 100*i, 10*i, 4*i)
		if i > 1 { // a counter that comes to be with its first count
			fmt.Fprintf(w, "vllm:request_success_total{r=\"stop\"} %d\n", i)
		}
		fmt.Fprintf(w, "vllm:time_to_first_token_seconds_sum %g\nvllm:time_to_first_token_seconds_count %d\n", 0.5*float64(i), i)
	}})
	opts := metricsOnly(url)
	opts.Dir = t.TempDir()
	seen, findings, err := observe(t, opts, until(t, func() bool { return n.Load() >= 5 }))
	if err != nil || len(findings) != 0 {
		t.Fatalf("%v, %v", err, findings)
	}
	check := func(name string, v *float64, want float64) {
		t.Helper()
		if v == nil || *v < want-1e-9 || *v > want+1e-9 {
			t.Errorf("%s: %v, want %v", name, v, want)
		}
	}
	run := find(seen.Series, "running_requests")
	if run.N < 3 || run.Metric != "vllm:num_requests_running" || run.File != MetricsFile {
		t.Errorf("%+v", run)
	}
	check("first", run.First, 3)
	check("last", run.Last, 7)
	check("max", run.Max, 7)
	check("kv max", find(seen.Series, "kv_cache_use").Max, 0.3)
	check("tokens", find(seen.Series, "prompt_tokens").Delta, 200)
	check("finished", find(seen.Series, "requests_finished").Delta, 3)
	check("ttft", find(seen.Series, "server_ttft_ms").Mean, 500)
	check("hits", seen.Values["prefix_cache_hit_ratio"].Value, 0.4)
	if s := find(seen.Series, "preemptions"); s.Unknown == "" || s.Delta != nil {
		t.Errorf("a metric that is not there: %+v", s)
	}
	if seen.CPUS == nil || *seen.CPUS <= 0 {
		t.Error("what observing cost is not told")
	}
	rows := lines(t, opts.Dir, MetricsFile)
	var values, series, before int
	for _, r := range rows[1:] {
		if v, ok := r["values"].([]any); ok {
			values++
			if r["at_ns"].(float64) < 0 {
				before++
			}
			if len(v) < 8 || v[0] == nil {
				t.Errorf("values %v", v)
			}
		}
		if list, ok := r["series"].([]any); ok {
			series += len(list)
		}
	}
	if st := sourceOf(t, seen, "metrics"); int64(values) != st.Looks || before != 1 || series != 10 || st.Errors != 0 || len(st.Files) != 3 {
		t.Errorf("%d looks in the file, %d before, %d series: %+v", values, before, series, st)
	}
}

// TestTroubledMetrics: whatever a service does, the stage goes on, in bounded time
// and memory, and the errors are counted.
func TestTroubledMetrics(t *testing.T) {
	good := "vllm:num_requests_running 1\n"
	after := func(n *atomic.Int64, bad http.HandlerFunc) http.HandlerFunc { // well at first
		return func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				io.WriteString(w, good)
				return
			}
			bad(w, r)
		}
	}
	line := strings.Repeat("x", 1<<20)
	endless := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, good); err != nil {
				return
			}
		}
	}
	long := func(w http.ResponseWriter, _ *http.Request) { // one line of 64 MiB
		for range 64 {
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}
	trickle := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			io.WriteString(w, "#")
			w.(http.Flusher).Flush()
			time.Sleep(20 * time.Millisecond)
		}
	}
	for _, c := range []struct {
		name string
		h    http.HandlerFunc
		want string
	}{
		{"500", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "boom", 500) }, "status 500: boom"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/else", http.StatusFound) }, "status 302"},
		{"never ends", endless, "larger than"},
		{"one long line", long, "larger than"},
		{"slow", trickle, "no whole answer within 1s"},
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no whole answer within 1s"},
		{"html", text("<html><body>hello</body></html>"), "not a text of metrics"},
		{"json", text(`{"a": 1}`), "not a text of metrics"},
		{"empty", text(""), "holds no sample"},
		{"cut", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
		{"huge header", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<18)) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			opts := metricsOnly(service(t, map[string]http.HandlerFunc{"/metrics": c.h, "/late": after(&n, c.h)}))
			opts.Timeout = 20 * time.Second
			looks := int64(3) // a good one and two bad ones
			if strings.Contains(c.want, "within") {
				opts.Timeout, looks = time.Second, 2
			}
			begun := time.Now()
			seen, findings, err := observe(t, opts, nothing)
			st := sourceOf(t, seen, "metrics")
			if err != nil || st.Status != schemas.ObservedUnknown || !strings.Contains(st.Unknown, c.want) || len(st.Files) != 0 || len(seen.Series) != 0 {
				t.Errorf("%v, %+v", err, st)
			}
			if len(findings) != 1 || findings[0].ID != "observe.metrics" || findings[0].Severity != schemas.SeverityUnknown {
				t.Errorf("findings %+v", findings)
			}
			opts.MetricsPath, opts.Dir = "/late", ""
			seen, findings, err = observe(t, opts, until(t, func() bool { return n.Load() >= looks }))
			st = sourceOf(t, seen, "metrics")
			if err != nil || st.Status != schemas.ObservedSeen || st.Errors < 2 || st.Looks != 1 || !strings.Contains(st.LastError, c.want) || st.Unknown == "" {
				t.Errorf("%v, %+v", err, st)
			}
			if len(findings) != 1 || findings[0].Severity != schemas.SeverityWarning {
				t.Errorf("findings %+v", findings)
			}
			if strings.Contains(st.LastError, "127.0.0.1") {
				t.Errorf("the error names an address: %s", st.LastError)
			}
			if took := time.Since(begun); took > 60*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

func TestBodiesAreBounded(t *testing.T) {
	url := service(t, map[string]http.HandlerFunc{"/": func(w http.ResponseWriter, r *http.Request) {
		for range 64 {
			if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
				return
			}
		}
	}, "/small": text("ok")})
	ep, err := newEndpoint(url, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer ep.close()
	if _, err := ep.get(t.Context(), "/", 1<<20); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") || cap(ep.buf) > 4<<20 {
		t.Errorf("%v, kept %d bytes", err, cap(ep.buf))
	}
	// The same endpoint goes on, over a connection that it then keeps.
	for range 3 {
		if b, err := ep.get(t.Context(), "/small", 10); err != nil || string(b) != "ok" {
			t.Errorf("%q, %v", b, err)
		}
	}
	nc := ep.nc
	if _, err := ep.get(t.Context(), "/small", 1); err == nil {
		t.Error("two bytes are not one")
	}
	if nc == nil || ep.nc != nil {
		t.Error("a connection with unread bytes was kept")
	}
	for _, path := range []string{"small", "//other/x", "http://127.0.0.1/"} {
		if _, err := ep.get(t.Context(), path, 10); err == nil {
			t.Errorf("path %q was asked", path)
		}
	}
}

func TestMetricsThatAreMissingOrRequired(t *testing.T) {
	url := service(t, nil)
	opts := metricsOnly(url)
	opts.Metrics = schemas.ObserveAuto
	seen, findings, err := observe(t, opts, nothing)
	if st := sourceOf(t, seen, "metrics"); err != nil || len(findings) != 0 || st.Status != schemas.ObservedUnknown || !strings.Contains(st.Unknown, "404") {
		t.Errorf("auto: %v, %v, %+v", err, findings, st)
	}
	opts.Require, opts.Dir = []string{"metrics"}, t.TempDir()
	if _, err := Start(context.Background(), opts); err == nil || !strings.Contains(err.Error(), "requires metrics: /metrics status 404") {
		t.Errorf("required: %v", err)
	}
	opts.URL = "http://127.0.0.1:1"
	if _, err := Start(context.Background(), opts); err == nil || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("refused: %v", err)
	}
	// There before, gone after.
	var n atomic.Int64
	opts.URL = service(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) > 1 {
			w.WriteHeader(503)
			return
		}
		io.WriteString(w, "a:generation_tokens_total 1\n")
	}})
	opts.Dir = t.TempDir()
	seen, _, err = observe(t, opts, nothing)
	if err == nil || !strings.Contains(err.Error(), unseenAfter) {
		t.Errorf("gone: %v", err)
	}
	if s := find(seen.Series, "generation_tokens"); s.Delta != nil || s.Unknown != unseenAfter {
		t.Errorf("a counter that nobody saw after: %+v", s)
	}
}

func TestACounterThatWentBack(t *testing.T) {
	var tokens atomic.Int64
	tokens.Store(1000)
	url := service(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "a:generation_tokens_total %d\n", tokens.Load())
	}})
	seen, _, err := observe(t, metricsOnly(url), func() { tokens.Store(500) })
	s := find(seen.Series, "generation_tokens")
	if err != nil || s.Delta != nil || !strings.Contains(s.Unknown, "went back") {
		t.Errorf("%v, %+v", err, s)
	}
}

func TestSecretsAreCutOutOfMetrics(t *testing.T) {
	opts := metricsOnly(service(t, map[string]http.HandlerFunc{"/metrics": text("m{key=\"s3cret\"} 1\n")}))
	opts.Dir = t.TempDir()
	opts.Hide = func(s string) string { return strings.ReplaceAll(s, "s3cret", "[hidden]") }
	if _, _, err := observe(t, opts, nothing); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{MetricsFile, MetricsFirstFile, MetricsLastFile, SummaryFile} {
		if b := readFile(t, opts.Dir, file); bytes.Contains(b, []byte("s3cret")) {
			t.Errorf("%s holds a secret", file)
		}
	}
}

func TestChecks(t *testing.T) {
	seen := func(requests, prompt, generated float64) *schemas.Observed {
		row := func(name string, v float64) schemas.ObservedSeries {
			return schemas.ObservedSeries{Name: name, Delta: &v}
		}
		return &schemas.Observed{Sources: []schemas.ObservedSource{{Name: "metrics", Status: schemas.ObservedSeen}}, Values: map[string]schemas.Value{},
			Series: []schemas.ObservedSeries{row("requests_finished", requests), row("prompt_tokens", prompt), row("generation_tokens", generated)}}
	}
	whole := schemas.Counts{Issued: 10, OK: 10, InputTokens: 100, OutputTokens: 50, OutputTokenSources: map[string]int{"usage": 10}}
	partly := schemas.Counts{Issued: 10, OK: 8, InputTokens: 80, OutputTokens: 40, OutputTokenSources: map[string]int{"usage": 8, "none": 2}}
	chunks := schemas.Counts{Issued: 10, OK: 10, InputTokens: 100, OutputTokens: 50, OutputTokenSources: map[string]int{"chunks": 10}}
	for _, c := range []struct {
		name   string
		o      *schemas.Observed
		counts schemas.Counts
		agrees string
	}{
		{"equal", seen(10, 100, 50), whole, "true true true"},
		{"others use it", seen(11, 120, 70), whole, "false false false"},
		{"lost", seen(10, 100, 49), whole, "true true false"},
		{"failures cost tokens", seen(9, 95, 47), partly, "true true true"},
		{"too few for those that went well", seen(7, 79, 39), partly, "false false false"},
		{"more than were sent", seen(11, 80, 40), partly, "false true true"},
		{"without usage", seen(10, 90, 55), chunks, "true unknown unknown"},
	} {
		findings := Check(c.o, c.counts, "stage s")
		var got []string
		wrong := 0
		for _, k := range c.o.Checks {
			got = append(got, k.Agrees)
			if k.Agrees == "false" {
				wrong++
			}
		}
		if strings.Join(got, " ") != c.agrees || len(findings) != wrong {
			t.Errorf("%s: %v, want %s; findings %v", c.name, got, c.agrees, findings)
		}
	}
}

// TestSeriesAreBounded: a service that names new series at every look costs no
// more than the limits.
func TestSeriesAreBounded(t *testing.T) {
	ep, err := newEndpoint("http://127.0.0.1:1", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s := newScraper(ep, "/metrics", t.TempDir(), func(s string) string { return s }, &schemas.ObservedSource{Name: "metrics"})
	long := strings.Repeat("x", 40<<10)
	for look := range 3 {
		var b strings.Builder
		for i := range 100 {
			fmt.Fprintf(&b, "m{a=\"%d-%d-%s\"} 1\n", look, i, long)
		}
		if err := s.parse([]byte(b.String())); err != nil {
			t.Fatal(err)
		}
	}
	if s.size > maxSeriesBytes || s.over == 0 || len(s.values) != len(s.index) || len(s.index) > 1000 {
		t.Errorf("%d bytes of series, %d left out, %d columns, %d known", s.size, s.over, len(s.values), len(s.index))
	}
	var many strings.Builder
	for i := range maxSeries + 10 {
		fmt.Fprintf(&many, "n%d 1\n", i)
	}
	s = newScraper(ep, "/metrics", t.TempDir(), func(s string) string { return s }, &schemas.ObservedSource{Name: "metrics"})
	if err := s.parse([]byte(many.String())); err != nil || len(s.index) != maxSeries || s.over != 10 {
		t.Errorf("%v, %d series, %d left out", err, len(s.index), s.over)
	}
}
