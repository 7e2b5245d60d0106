package workload

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const synthSample = "Request Time,Model Name,Input Length,Output Length\r\n" +
	"00:00:00.418,synth_model_08,168,832\r\n" +
	"00:00:02.253,synth_model_14,438,176\r\n" +
	"00:01:03.071,synth_model_08,619,106\r\n"

func TestReadSynth(t *testing.T) {
	want := []Request{
		{ID: "0", AtNs: 418e6, Model: "synth_model_08", InputTokens: 168, OutputTokens: 832},
		{ID: "1", AtNs: 2253e6, Model: "synth_model_14", InputTokens: 438, OutputTokens: 176},
		{ID: "2", AtNs: 63071e6, Model: "synth_model_08", InputTokens: 619, OutputTokens: 106},
	}
	for name, text := range map[string]string{
		"CRLF":            synthSample,
		"LF":              strings.ReplaceAll(synthSample, "\r\n", "\n"),
		"BOM":             "\xef\xbb\xbf" + synthSample,
		"no end":          strings.TrimSuffix(synthSample, "\r\n"),
		"blank at end":    synthSample + "\r\n\r\n",
		"quoted cell":     strings.Replace(synthSample, "synth_model_14", `"synth_model_14"`, 1),
		"shorter decimal": strings.Replace(synthSample, "00:00:02.253", "00:00:02.2530", 1),
	} {
		w, err := Read(strings.NewReader(text), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(want, w.Requests); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if w.Form != FormAegaeonSynth || w.Digest != schemas.DigestOf([]byte(text)) {
			t.Errorf("%s: form %q digest %s", name, w.Form, w.Digest)
		}
	}
}

func TestReadRequests(t *testing.T) {
	text := "request_id,timestamp,input_tokens,output_tokens\na,0,10,20\nb,1.5,11,21\nc,1.5,12,22\n"
	opts := Options{Unit: "s", Models: []string{"m1", "m2"}, Seed: 4}
	w, err := Read(strings.NewReader(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Read(strings.NewReader(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w, again, cmpopts.IgnoreUnexported(Workload{})); d != "" {
		t.Errorf("equal seeds give other models: %s", d)
	}
	if w.Requests[1].AtNs != 1500e6 || w.Requests[2].ID != "c" || w.Requests[2].OutputTokens != 22 {
		t.Errorf("got %+v", w.Requests)
	}
	opts.Unit = "ms"
	w, err = Read(strings.NewReader(text), opts)
	if err != nil || w.Requests[1].AtNs != 1500e3 {
		t.Errorf("ms: %v %+v", err, w.Requests)
	}
}

func TestReadRefuses(t *testing.T) {
	const h, b = "Request Time,Model Name,Input Length,Output Length\n", "request_id,timestamp,input_tokens,output_tokens\n"
	requests := Options{Unit: "s", Models: []string{"m"}}
	for _, c := range []struct {
		text string
		opts Options
		want string
	}{
		{"", Options{}, "w.csv:1: the file is empty"},
		{"Request Time,Model Name\n00:00:01.000,m\n", Options{}, "w.csv:1: the two-column form has no lengths"},
		{"time,model\n", Options{}, "w.csv:1: unknown header"},
		{"Request Time, Model Name,Input Length,Output Length\n", Options{}, "w.csv:1: unknown header"},
		{h, Options{}, "w.csv:1: no request"},
		{h + "00:00:01.000,m,1\n", Options{}, "w.csv:2: 3 columns"},
		{h + "00:00:01.000,m,1,2,3\n", Options{}, "w.csv:2: 5 columns"},
		{h + "00:00:61.000,m,1,2\n", Options{}, "w.csv:2:1: time \"00:00:61.000\""},
		{h + "1.5,m,1,2\n", Options{}, "w.csv:2:1: time"},
		{h + "-1:00:00.000,m,1,2\n", Options{}, "w.csv:2:1: time"},
		{h + "00:00:00.,m,1,2\n", Options{}, "w.csv:2:1: time"},
		{h + "9999:00:00,m,1,2\n", Options{}, "beyond the limit"},
		{h + "00:00:01.000,,1,2\n", Options{}, "w.csv:2:14: model name \"\" is empty"},
		{h + "00:00:01.000,m,0,2\n", Options{}, "w.csv:2:16: input length 0 is out of range"},
		{h + "00:00:01.000,m,1,x\n", Options{}, "w.csv:2:18: output length \"x\" is not a whole number"},
		{h + "00:00:01.000,m,1,+2\n", Options{}, "w.csv:2:18: output length"},
		{h + "00:00:01.000,m,1,99999999999999999999\n", Options{}, "w.csv:2:18: output length"},
		{h + "00:00:02.000,m,1,2\n00:00:01.000,m,1,2\n", Options{}, "w.csv:3:1: time \"00:00:01.000\" is before"},
		{h + "00:00:02.000,m,1,2\n\n00:00:03.000,m,1,2\n", Options{}, "w.csv:3: blank line"},
		{h + "00:00:01.000,m\xff,1,2\n", Options{}, "w.csv:2: not valid UTF-8"},
		{h + "00:00:01.000,m\x00,1,2\n", Options{}, "control character"},
		{h + strings.Repeat("x", maxLineBytes+1), Options{}, "w.csv:2: line is longer"},
		{h + "00:00:01.000,m,1,2\n00:00:01.000,m,1,2\n", Options{MaxRows: 1}, "w.csv:3: more than 1 requests"},
		{b + "a,0,1,2\n", Options{Models: []string{"m"}, Unit: "h"}, "unit of the timestamps"},
		{b + "a,0,1,2\n", Options{Unit: "s"}, "names no models"},
		{b + "a,0,1,2\na,1,1,2\n", requests, "w.csv:3:1: request_id \"a\" is already on line 2"},
		{b + "a,NaN,1,2\n", requests, "w.csv:2:3: timestamp \"NaN\""},
		{b + "a,+Inf,1,2\n", requests, "w.csv:2:3: timestamp"},
		{b + "a,-1,1,2\n", requests, "negative"},
		{b + "a,1700000000,1,2\n", requests, "check the unit"},
	} {
		c.opts.Name = "w.csv"
		_, err := Read(strings.NewReader(c.text), c.opts)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: got %v, want %q", c.text, err, c.want)
		}
	}
}

func TestReadFileMissing(t *testing.T) {
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none.csv"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestWindowSpeedAssign(t *testing.T) {
	w, err := Read(strings.NewReader(synthSample), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.Window(2*time.Second, 64*time.Second)
	if err != nil || len(got.Requests) != 2 || got.Requests[0].AtNs != 253e6 || got.Requests[0].ID != "1" {
		t.Errorf("window: %v %+v", err, got.Requests)
	}
	if _, err := w.Window(3*time.Second, 4*time.Second); err == nil {
		t.Error("an empty window was accepted")
	}
	if _, err := w.Window(4*time.Second, 3*time.Second); err == nil {
		t.Error("a reversed window was accepted")
	}
	fast, err := w.Speed(20)
	if err != nil || fast.Requests[0].AtNs != 418e6/20 || w.Requests[0].AtNs != 418e6 {
		t.Errorf("speed: %v %+v", err, fast.Requests)
	}
	if _, err := w.Speed(0); err == nil {
		t.Error("speed 0 was accepted")
	}
	named, maps, err := w.AssignModels([]string{"z", "a"}, false)
	if err != nil || named.Requests[0].Model != "z" || named.Requests[1].Model != "a" || w.Requests[0].Model != "synth_model_08" {
		t.Errorf("assign: %v %+v %+v", err, maps, named.Requests)
	}
	if _, _, err := w.AssignModels([]string{"z"}, false); err == nil || !strings.Contains(err.Error(), "it has 2 models, the service has 1") {
		t.Errorf("too few models: %v", err)
	}
	if shared, _, err := w.AssignModels([]string{"z"}, true); err != nil || len(shared.Models()) != 1 {
		t.Errorf("wrap: %v", err)
	}
}

// Every published trace reads, and writes back to the same bytes.
func TestPublishedTraces(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/data/aegaeon/workloads/*.csv")
	if len(files) == 0 {
		t.Skip("the published traces are not beside the checkout")
	}
	for _, f := range files {
		w, err := ReadFile(f, Options{})
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := WriteCSV(&got, w); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: does not write back to the same bytes (%v)", f, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(synthSample), true)
	f.Add([]byte("request_id,timestamp,input_tokens,output_tokens\na,0,10,20\nb,1.5e1,11,21\n"), false)
	f.Add([]byte("Request Time,Model Name,Input Length,Output Length\n00:00:00.418,\"a,b\",168,832\n"), true)
	f.Add([]byte("\xef\xbb\xbfRequest Time,Model Name\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, seconds bool) {
		opts := Options{Unit: "ms", Models: []string{"a", "b"}}
		if seconds {
			opts.Unit = "s"
		}
		w, err := Read(bytes.NewReader(data), opts)
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Line < 1 {
				t.Fatalf("error without a position: %v", err)
			}
			return
		}
		before, ids := int64(0), map[string]bool{}
		for _, r := range w.Requests {
			if r.AtNs < before || r.InputTokens < 1 || r.OutputTokens < 1 || r.Model == "" || ids[r.ID] {
				t.Fatalf("accepted %+v after %d ns", r, before)
			}
			before, ids[r.ID] = r.AtNs, true
		}
	})
}

// TestRowsOfAWrongTypeInPlainWords: the file and the line, and none of this program's
// own names.
func TestRowsOfAWrongTypeInPlainWords(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a.jsonl": {"{\"timestamp\":0,\"input_length\":3,\"output_length\":4}\n{\"timestamp\":1,\"input_length\":\"x\",\"output_length\":4}\n", "a.jsonl:2: not a JSON object of this form: input_length holds string: want a whole number"},
		"b.jsonl": {"{\"prompt\":\"a\"}\n{\"prompt\":7}\n", "b.jsonl:2: not a JSON object of this form: prompt holds number: want a text"},
		"c.json":  {"[{\"id\":\"a\",\"conversations\":[{\"from\":\"human\",\"value\":\"hi\"},{\"from\":\"gpt\",\"value\":\"yo\"}]},\n\n{\"id\":\"b\",\"conversations\":7}]", "c.json:3: entry 1: conversations holds number: want a list"},
	} {
		_, err := Read(strings.NewReader(c.text), Options{Name: name, Models: []string{"m"}, Turns: 1})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
