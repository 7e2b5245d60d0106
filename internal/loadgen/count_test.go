package loadgen

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"assay/schemas"
)

// TestCountsThatAreNone checks that a message names the field and the value, and
// nothing of this program.
func TestCountsThatAreNone(t *testing.T) {
	for _, field := range []string{"prompt_tokens", "completion_tokens"} {
		for _, value := range []string{"1.5", "-3", "1e300", "99999999999999999999", "10000001", `"7"`, "true", "[3]", `{"n":3}`, `"` + strings.Repeat("7", 500) + `"`} {
			_, err := parseEvent(Event{Data: fmt.Appendf(nil, `{"choices":[],"usage":{%q:%s}}`, field, value)})
			if err == nil {
				t.Errorf("%s = %s was taken", field, value)
				continue
			}
			text := err.Error()
			if !strings.Contains(text, "usage."+field+" is "+value[:min(len(value), 20)]) || !strings.Contains(text, "want a whole number") || strings.Contains(text, "Go ") || len(text) > 300 {
				t.Errorf("%s = %.40s: %s", field, value, text)
			}
		}
	}
	for value, want := range map[string]int{"7": 7, "0": 0, "12.0": 12, "1.2e1": 12, "10000000": maxTokens} {
		p, err := parseEvent(Event{Data: fmt.Appendf(nil, `{"choices":[],"usage":{"completion_tokens":%s,"prompt_tokens":null}}`, value)})
		if err != nil || p.usage == nil || p.usage.CompletionTokens == nil || *p.usage.CompletionTokens != want || p.usage.PromptTokens != nil {
			t.Errorf("%s: %+v %v", value, p.usage, err)
		}
	}
}

func TestWrongTypesInPlainWords(t *testing.T) {
	for event, want := range map[string]string{
		`{"choices":[{"index":1.5}]}`:                    "choices.index holds number 1.5: want a whole number",
		`{"choices":[{"delta":{"content":7}}]}`:          "choices.delta.content holds number: want a text",
		`{"choices":"none"}`:                             "choices holds string: want a list",
		`{"choices":[],"usage":"seven"}`:                 "usage holds string: want an object",
		`[]`:                                             "it holds array: want an object",
		`{"choices":[{"token_ids":["x"]}]}`:              "holds string: want a whole number",
		`{"choices":[{"message":[],"finish_reason":1}]}`: "want a",
	} {
		_, err := parseEvent(Event{Data: []byte(event)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "loadgen") {
			t.Errorf("%s: %v, want %q", event, err, want)
		}
	}
}

func TestRecordOfACountThatIsNone(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":-1}}\n\n")
	})
	c, err := New(Options{BaseURL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	rec := c.Do(context.Background(), Request{ScheduledRequest: schemas.ScheduledRequest{ID: "x", Model: "m", InputTokens: 1, OutputTokens: 2}})
	if rec.Outcome != schemas.OutcomeProtocolError || rec.Error != "usage.completion_tokens is -1: want a whole number from 0 to 10000000" {
		t.Errorf("%s: %s", rec.Outcome, rec.Error)
	}
}
