package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/durable"
	"assay/internal/report"
	"assay/schemas"
)

// writeRun makes an extracted run of one stage: two requests of 10 prompt and 5
// output tokens, with a first token after 100 ms and one each 20 ms, and a log by
// which a token takes perToken ms.
func writeRun(t *testing.T, perToken float64, second int64) string {
	t.Helper()
	dir := t.TempDir()
	logs, out := filepath.Join(dir, "services", "engine-1"), filepath.Join(dir, "trials", "t001", "closed", "outputs", "requests")
	for _, d := range []string{logs, out} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text := "INFO:     Application startup complete.\n"
	for range 2 {
		text += "llama_perf_context_print:        load time =     200.00 ms\n" +
			"llama_perf_context_print: prompt eval time =      98.00 ms /     9 tokens (   10.89 ms per token,    91.84 tokens per second)\n" +
			fmt.Sprintf("llama_perf_context_print:        eval time = %10.2f ms /     4 runs   (   17.00 ms per token,    58.82 tokens per second)\n", 4*perToken*0.85) +
			fmt.Sprintf("llama_perf_context_print:       total time = %10.2f ms /    13 tokens\n", 98+4*perToken)
	}
	if err := os.WriteFile(filepath.Join(logs, "service.log"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := durable.OpenAppend(filepath.Join(out, "requests.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := report.NewRecordWriter(f)
	if err != nil {
		t.Fatal(err)
	}
	for i, at := range []int64{0, second} {
		rec := schemas.RequestRecord{Schema: schemas.RequestRecordV1, ID: fmt.Sprint(i), Index: i, Model: "m", API: "completions", AskedInputTokens: 10, AskedOutputTokens: 5,
			Outcome: schemas.OutcomeOK, StampSource: "user", ScheduledNs: at, FinishReason: "length", InputTokensSource: "tokenizer", OutputTokensSource: "chunks"}
		stamp := func(ms int64) *int64 { v := at + ms*1e6; return &v }
		in, n := 10, 5
		rec.InputTokens, rec.OutputTokens = &in, &n
		rec.DispatchedNs, rec.FirstTokenNs, rec.LastTokenNs, rec.FinishNs, rec.DoneNs, rec.EndNs = stamp(0), stamp(100), stamp(180), stamp(181), stamp(181), *stamp(181)
		for k := range int64(5) {
			rec.Chunks = append(rec.Chunks, schemas.Chunk{AtNs: *stamp(100 + 20*k), Bytes: 4})
		}
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		perToken float64
		second   int64 // when the second request is sent, in ns
		stages   []string
		want     string
	}{
		{20, 200e6, []string{"closed"}, ""},
		{20, 100e6, []string{"closed"}, ""},
		{16, 200e6, []string{"closed"}, "TPOT"},
		{20, 200e6, []string{"closed", "open"}, "stage open has 0 request logs"},
		{20, 200e6, []string{"closed", "closed"}, "4 requests, the log 2 accounts"},
	} {
		err := compare(io.Discard, writeRun(t, c.perToken, c.second), c.stages, 0.05)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
	if err := compare(io.Discard, t.TempDir(), []string{"closed"}, 0.05); err == nil || !strings.Contains(err.Error(), "0 logs") {
		t.Errorf("error %v", err)
	}
}

func TestRows(t *testing.T) {
	dir := writeRun(t, 20, 200e6)
	stages, err := readStages(dir, []string{"closed"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, "services", "engine-1", "service.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	told, err := readLog(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := match(stages, told); err != nil {
		t.Fatal(err)
	}
	want := []row{{"", 10, 10, true}, {"", 20, 20, true}, {"", 20, 17, false}, {"", 180, 178, true}, {"", 100, 98, false}}
	got := stages[0].rows()
	if len(got) != len(want) {
		t.Fatalf("%d rows", len(got))
	}
	for i, r := range got {
		if r.ours != want[i].ours || r.theirs != want[i].theirs || r.gate != want[i].gate {
			t.Errorf("%+v, want %+v", r, want[i])
		}
	}
}
