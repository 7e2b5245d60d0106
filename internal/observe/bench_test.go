package observe

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"assay/schemas"
)

// large is a text of about a thousand series, as a serving engine has with three
// models: 100 KB.
func large() string {
	var b strings.Builder
	b.WriteString(`vllm:num_requests_running{engine="0",model_name="m"} 3.0` + "\n")
	for family := range 60 {
		fmt.Fprintf(&b, "# HELP vllm:family_%d Some histogram of seconds that something takes.\n# TYPE vllm:family_%d histogram\n", family, family)
		for le := range 17 {
			fmt.Fprintf(&b, "vllm:family_%d_seconds_bucket{engine=\"0\",le=\"%g\",model_name=\"Qwen/Qwen3-4B-Instruct\"} %d.0\n", family, float64(le)*0.25, 1000*le)
		}
	}
	return b.String()
}

// BenchmarkScrape is what one look at a large text of metrics costs, from the
// request to the line in the file.
func BenchmarkScrape(b *testing.B) {
	body := large()
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
	ep, err := newEndpoint(benchServer(b, mux), time.Second)
	if err != nil {
		b.Fatal(err)
	}
	s := newScraper(ep, "/metrics", b.TempDir(), func(s string) string { return s }, &schemas.ObservedSource{Name: "metrics"})
	if err := s.before(b.Context()); err != nil {
		b.Fatal(err)
	}
	s.out.begin(time.Now())
	b.ReportAllocs()
	b.ResetTimer()
	cpu := time.Duration(0)
	done := lockThread(&cpu)
	for b.Loop() {
		if err := s.look(b.Context(), meanwhile); err != nil {
			b.Fatal(err)
		}
	}
	done()
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
	if err := s.finish(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHost is what one full look at this process and the host costs.
func BenchmarkHost(b *testing.B) {
	h := &hostLooker{dir: b.TempDir(), pid: os.Getpid(), st: &schemas.ObservedSource{Name: "host"}}
	if err := h.before(b.Context()); err != nil {
		b.Skip("no /proc here:", err)
	}
	h.out.begin(time.Now())
	for b.Loop() {
		if err := h.look(b.Context(), afterAll); err != nil {
			b.Fatal(err)
		}
	}
}
