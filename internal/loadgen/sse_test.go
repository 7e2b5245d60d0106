package loadgen

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden records of testdata/sse")

// events collects what a parser makes of the pieces of a stream.
func events(limit int, pieces ...[]byte) (out []string, err error) {
	p := NewParser(limit)
	for _, b := range pieces {
		err := p.Feed(b, func(e Event) error {
			out = append(out, string(e.Name)+"|"+string(e.Data))
			return nil
		})
		if err != nil {
			return out, err
		}
	}
	ev, ok, err := p.Rest()
	if ok {
		out = append(out, "rest:"+string(ev.Name)+"|"+string(ev.Data))
	}
	return out, err
}

func TestParser(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"data: a\n\n", []string{"|a"}},
		{"data:a\r\rdata: b\r\r", []string{"|a", "|b"}},
		{"data: a\r\n\r\ndata:  b\r\n\r\n", []string{"|a", "| b"}},
		{"\xef\xbb\xbfdata: a\n\n", []string{"|a"}},
		{": comment\n\ndata: a\n: more\ndata: b\n\n", []string{"|a\nb"}},
		{"event: error\ndata: a\n\ndata: b\n\n", []string{"error|a", "|b"}},
		{"event: x\n\ndata: b\n\n", []string{"|b"}},
		{"id: 1\nretry: 5\nunknown: z\ndata\n\n", []string{"|"}},
		{"data\ndata\n\n", []string{"|\n"}},
		{"\n\n\n", nil},
		{"data: a\n\ndata: b", []string{"|a", "rest:|b"}},
		{"data: a\n\ndata: b\n", []string{"|a", "rest:|b"}},
		{"data: é\n\n", []string{"|é"}},
	} {
		whole, err := events(0, []byte(c.in))
		if d := cmp.Diff(c.want, whole); err != nil || d != "" {
			t.Errorf("%q: %v %s", c.in, err, d)
		}
		everySplit(t, []byte(c.in), func(pieces ...[]byte) any {
			got, err := events(0, pieces...)
			if err != nil {
				t.Fatal(err)
			}
			return got
		})
	}
}

// everySplit feeds data cut in two at every place, and byte by byte, and fails
// when one of them gives another result than the whole.
func everySplit(t *testing.T, data []byte, result func(pieces ...[]byte) any) {
	t.Helper()
	want := result(data)
	for i := range data {
		if d := cmp.Diff(want, result(data[:i], data[i:])); d != "" {
			t.Fatalf("split at %d: %s", i, d)
		}
	}
	var bytewise [][]byte
	for i := range data {
		bytewise = append(bytewise, data[i:i+1])
	}
	if d := cmp.Diff(want, result(bytewise...)); d != "" {
		t.Fatalf("byte by byte: %s", d)
	}
}

func TestParserLimit(t *testing.T) {
	for name, in := range map[string]string{
		"one line":   "data: " + strings.Repeat("x", 200),
		"many lines": strings.Repeat("data: xxxxxxxxx\n", 20),
		"comment":    ":" + strings.Repeat("x", 200),
		"whole line": "data: " + strings.Repeat("x", 200) + "\n\n",
	} {
		var large *EventTooLargeError
		if _, err := events(100, []byte(in)); !errors.As(err, &large) || large.Limit != 100 {
			t.Errorf("%s: got %v", name, err)
		}
	}
	long := strings.Repeat("x", 90)
	if got, err := events(100, []byte("data: "+long+"\n\ndata: "+long+"\n\n")); err != nil || len(got) != 2 {
		t.Errorf("events below the limit: %v, %d", err, len(got))
	}
}

// fold runs a stream as the client does and returns the record. Stamps are the
// number of reads, so only their presence is compared between splits.
func foldStream(held bool, clean bool, pieces ...[]byte) schemas.RequestRecord {
	rec := schemas.RequestRecord{API: APIChat, Held: held, AskedOutputTokens: 3, Chunks: []schemas.Chunk{}}
	s := newStream(&rec, 1<<16)
	for _, b := range pieces {
		s.feed(b, mark{at: 1, exact: true})
		if s.fault != nil || s.ended {
			break
		}
	}
	if s.fault == nil && !s.ended {
		s.end(1, clean)
	}
	rec.EndNs = 1
	s.finish(nil)
	for i := range rec.Chunks {
		rec.Chunks[i].SinceNs = nil // which events share a read is a matter of the split
	}
	return rec
}

// The corpus: each stream, in every split, gives the one record beside it. A file
// name with "cut" ends without the end of its body.
func TestStreamCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/sse/*.sse")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d streams in the corpus, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".sse"), func(t *testing.T) {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			clean := !strings.Contains(f, "cut")
			everySplit(t, data, func(pieces ...[]byte) any { return foldStream(false, clean, pieces...) })
			got, err := json.MarshalIndent(foldStream(false, clean, data), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden := strings.TrimSuffix(f, ".sse") + ".json"
			if *update {
				if err := os.WriteFile(golden, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

// A service without usage is held to a length by what it says, not by how it cuts
// its events.
func TestHeldWithoutUsage(t *testing.T) {
	for name, want := range map[string]schemas.Outcome{
		"no-usage-empty-last": schemas.OutcomeOK, "tokens-merged-no-usage": schemas.OutcomeOK, "interrupted-done": schemas.OutcomeTruncated,
	} {
		data, err := os.ReadFile("testdata/sse/" + name + ".sse")
		if err != nil {
			t.Fatal(err)
		}
		if rec := foldStream(true, true, data); rec.Outcome != want {
			t.Errorf("%s: %s %s", name, rec.Outcome, rec.Error)
		}
		early := bytes.ReplaceAll(data, []byte(`"length"`), []byte(`"stop"`))
		if rec := foldStream(true, true, early); name == "tokens-merged-no-usage" && rec.Outcome != schemas.OutcomeLengthMismatch {
			t.Errorf("%s that stopped early: %s", name, rec.Outcome)
		}
	}
}

func FuzzStream(f *testing.F) {
	files, _ := filepath.Glob("testdata/sse/*.sse")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint16(len(data)/2), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, cut uint16, clean bool) {
		whole := foldStream(true, clean, data)
		i := min(int(cut), len(data))
		if d := cmp.Diff(whole, foldStream(true, clean, data[:i], data[i:])); d != "" {
			t.Fatalf("split at %d: %s", i, d)
		}
		if whole.Outcome == "" || (whole.Outcome == schemas.OutcomeOK) != (whole.Error == "") {
			t.Fatalf("outcome %q, error %q", whole.Outcome, whole.Error)
		}
		// Fewer events than tokens are no wrong length where the service says it reached it.
		held := whole.OutputTokens != nil && (*whole.OutputTokens == 3 || *whole.OutputTokens < 3 && whole.OutputTokensSource == "chunks" && whole.FinishReason == "length")
		if whole.Outcome == schemas.OutcomeOK && (whole.FinishReason == "" || len(whole.Chunks) == 0 || !held) {
			t.Fatalf("ok without its conditions: %+v", whole)
		}
	})
}
