package loadgen

import (
	"bytes"
	"fmt"
	"testing"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

var quickSeeds = []string{
	`{"id":"c","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"tok ","logprobs":null,"finish_reason":null}]}`,
	`{"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}`,
	`{"choices":[{"delta":{"content":"a\n\"b\" \u00e9 \\ \/ \u003c"},"index":0,"finish_reason":"length"}],"usage":{"prompt_tokens":5,"completion_tokens":7,"total_tokens":12,"d":{"x":[1,"}"]}}}`,
	`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}`,
	`{"choices":[{"index":0,"text":"\ud83c\udf31"}]}`, `{"choices":[{"index":0,"Text":"x"}]}`, `{"choices":[{"index":0,"text":"a","text":"b"}]}`,
	`{"error":{"message":"x"}}`, `{"error":null,"choices":[]}`, `{"object":"error","message":"m"}`, `{"choices":[{"index":1,"text":"a"}]}`,
	`{"choices":[{"text":"a"},{"text":"b"}]}`, `{"choices":[{"token_ids":[1,2],"text":"a"}]}`, `{"choices":[{"delta":{"reasoning":"r"}}]}`,
	`{"choices":null}`, `{}`, `[]`, `{"choices":[{"index":0.0}]}`, `{"usage":{"prompt_tokens":-1}}`, `{"usage":{"prompt_tokens":1e3}}`, `{"choices":[null]}`,
	`{"choices":[{"text":"` + "\xff" + `"}]}`, `{"choices" : [ { "text" : "a" , "index" : 0 } ] , "x" : [ { } , [ ] , 1.5 , true ] }`,
}

// Whatever quick takes, it understands as the whole parser does.
func FuzzQuick(f *testing.F) {
	for _, s := range quickSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.TrimSpace(data)
		var q quick
		got, ok := q.read(data)
		if !ok {
			return
		}
		want, err := parseEvent(Event{Data: data})
		if err != nil {
			t.Fatalf("taken, but for the parser it is an error: %v", err)
		}
		if len(want.visible) == 0 {
			want.visible = nil
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(piece{})); d != "" {
			t.Error(d)
		}
	})
}

// The events that services send for tokens are taken, not left.
func TestQuickTakesTokens(t *testing.T) {
	for _, s := range quickSeeds[:4] {
		if _, ok := new(quick).read([]byte(s)); !ok {
			t.Errorf("left: %s", s)
		}
	}
}

func tokenStream(tokens int) (events [][]byte) {
	for i := range tokens {
		events = append(events, fmt.Appendf(nil, "data: {\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"token\\n \",\"logprobs\":null,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d}}\n\n", i+1))
	}
	return events
}

// A token event that is read by itself allocates nothing.
func TestNoAllocationPerChunk(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates; the tests without it check this")
	}
	const tokens = 200
	events := tokenStream(tokens)
	rec := schemas.RequestRecord{AskedOutputTokens: 2 * tokens, Chunks: []schemas.Chunk{}}
	s := newStream(&rec, 0)
	i := 0
	feed := func() {
		s.feed(events[i], mark{since: int64(i), at: int64(i + 1), exact: true})
		i++
	}
	feed() // the first makes its stamps
	if n := testing.AllocsPerRun(100, feed); n != 0 {
		t.Errorf("%v allocations for a token event", n)
	}
	if len(rec.Chunks) != i || rec.Chunks[i-1].Tokens == nil || *rec.Chunks[i-1].Tokens != 1 || s.fault != nil {
		t.Errorf("%d chunks of %d events, %+v", len(rec.Chunks), i, s.fault)
	}
}

func BenchmarkTokenEvent(b *testing.B) {
	events := tokenStream(1000)
	rec := schemas.RequestRecord{AskedOutputTokens: 4096, Chunks: []schemas.Chunk{}}
	s := newStream(&rec, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%1000 == 0 {
			rec.Chunks, s.told = rec.Chunks[:0], 0
		}
		s.feed(events[i%1000], mark{at: int64(i), exact: true})
	}
}
