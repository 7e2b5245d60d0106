package workload

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"assay/schemas"

	"github.com/google/go-cmp/cmp"
)

var anyModel = Options{Models: []string{"m"}, Name: "w"}

const (
	azure23 = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n2023-11-16 18:15:51.0000000,396,0\r\n"
	azure24 = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00+00:00,10,20\n2024-05-10 00:00:00.009930+00:00,11,21\n2024-05-10 02:00:01.5+02:00,12,22\n"
	burst12 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,a,1,ChatGPT,472,18,490,Conversation log\n45.5,b,2,GPT-4,10,0,10,API log\n118,a,3,GPT-4,1087,230,1317,API log\n"
	burst11 = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n118,GPT-4,1087,230,1317,API log\n"
	moon    = `{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}` + "\n" + `{"timestamp": 1500, "input_length": 600, "output_length": 6, "hash_ids": [1, 9]}` + "\n"
	bailian = `{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.25, "input_length": 20, "output_length": 5, "type": "text", "turn": 1, "hash_ids": [1, 2]}` + "\n"
	trace   = `{"timestamp": 1.5, "input_length": 20, "output_length": 5}` + "\n"
	prompts = `{"prompt": "hello there", "output_tokens": 7}` + "\n" + `{"prompt": "again"}` + "\n"
	share   = `[{"id": "x", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]},` + "\n" + ` {"id": "y", "conversations": [{"from": "gpt", "value": "hi"}]},` + "\n" + ` {"conversations": [{"from": "user", "value": "two\nlines"}, {"from": "gpt", "value": "ok"}]}]`
)

func TestFormsAreToldAndRead(t *testing.T) {
	type row struct {
		id      string
		at      time.Duration
		in, out int
		text    string
		blocks  []int64
	}
	for _, c := range []struct {
		text   string
		form   Form
		want   []row
		failed int
		says   string
	}{
		{azure23, FormAzure, []row{{"0", 0, 374, 44, "", nil}, {"1", 4314579 * time.Microsecond, 396, 109, "", nil}}, 1, "clock times"},
		{azure24, FormAzure, []row{{"0", 0, 10, 20, "", nil}, {"1", 9930 * time.Microsecond, 11, 21, "", nil}, {"2", 1500 * time.Millisecond, 12, 22, "", nil}}, 0, "1.333 requests/s"},
		{burst12, FormBurstGPT, []row{{"0", 5 * time.Second, 472, 18, "", nil}, {"1", 118 * time.Second, 1087, 230, "", nil}}, 1, "times in s"},
		{burst11, FormBurstGPT, []row{{"0", 5 * time.Second, 472, 18, "", nil}, {"1", 118 * time.Second, 1087, 230, "", nil}}, 0, "last at 1m58s"},
		{moon, FormMooncake, []row{{"0", 0, 700, 5, "", []int64{1, 2}}, {"1", 1500 * time.Millisecond, 600, 6, "", []int64{1, 9}}}, 0, "times in ms, as the form has them"},
		{bailian, FormBailian, []row{{"0", 250 * time.Millisecond, 20, 5, "", []int64{1, 2}}}, 0, "times in s"},
		{trace, FormTrace, []row{{"0", 1500 * time.Millisecond, 20, 5, "", nil}}, 0, "form trace, told from the file"},
		{prompts, FormPrompts, []row{{"0", 0, 0, 7, "hello there", nil}, {"1", 0, 0, 0, "again", nil}}, 0, "no times"},
		{share, FormShareGPT, []row{{"0", 0, 0, 0, "hi", nil}, {"1", 0, 0, 0, "two\nlines", nil}}, 1, "no times"},
	} {
		for _, text := range []string{c.text, "\xef\xbb\xbf" + c.text} {
			w, err := Read(strings.NewReader(text), anyModel)
			if err != nil {
				t.Errorf("%s: %v", c.form, err)
				continue
			}
			var got []row
			for _, r := range w.Requests {
				got = append(got, row{r.ID, time.Duration(r.AtNs), r.InputTokens, r.OutputTokens, r.Text, r.Blocks})
			}
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(row{})); d != "" {
				t.Errorf("%s: %s", c.form, d)
			}
			if w.Form != c.form || w.Reading.Failed != c.failed || !strings.Contains(w.Reading.Verdict, c.says) || w.Digest != schemas.DigestOf([]byte(text)) {
				t.Errorf("%s: form %s, reading %+v", c.form, w.Form, w.Reading)
			}
		}
	}
}

func TestFormsCanBeNamed(t *testing.T) {
	w, err := Read(strings.NewReader("first prompt\n\n{\"not\": \"json\"}\n"), Options{Form: FormText, Models: []string{"m"}})
	if err != nil || len(w.Requests) != 2 || w.Requests[1].Text != `{"not": "json"}` {
		t.Errorf("text: %+v, %v", w.Requests, err)
	}
	// The same keys in another unit: a tool's own seconds.
	w, err = Read(strings.NewReader(moon), Options{Form: FormMooncake, Unit: "s", Models: []string{"m"}})
	if err != nil || w.SpanNs() != 1500e9 || !strings.Contains(w.Reading.Verdict, "times in s, as named") {
		t.Errorf("%v %+v", err, w.Reading)
	}
	if _, err := Read(strings.NewReader(azure23), Options{Form: FormBurstGPT, Models: []string{"m"}}); err == nil {
		t.Error("another form than the header's: no error")
	}
	if _, err := Read(strings.NewReader(azure23), Options{Form: "nonsense"}); err == nil {
		t.Error("unknown form: no error")
	}
}

func TestFormErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{azure23[:39] + "\r\nyesterday,1,2\r\n", "w:2:1: time"},
		{"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n2023-11-16 18:15:45,1,2\n", "w:3:1: time"},
		{strings.Replace(burst12, "Model", "Modle", 1), `w:1: the header has no column "Model"`},
		{burst11 + "119,GPT-4,x,1,1,API log\n", "w:4:11: input length"},
		{moon + "{\n", "w:3: not a JSON object"},
		{moon + `{"timestamp": "later", "input_length": 1, "output_length": 1}` + "\n", "w:3: not a JSON object"},
		{moon + `{"timestamp": 5, "input_length": 1, "output_length": 1}` + "\n", "w:3: time \"5\" is before"},
		{moon + `{"input_length": 1, "output_length": 1}` + "\n", "w:3: timestamp, input_length or output_length is missing"},
		{`{"a": 1}`, "w:1: the keys are of no known form"},
		{prompts + `{"output_tokens": 4}`, "w:3: prompt is missing"},
		{share[:len(share)-1], "w:3: the array does not end"},
		{"[\n{\"conversations\": 5}]", "w:2: entry 0"},
		{"[]", "no request"},
	} {
		_, err := Read(strings.NewReader(c.text), anyModel)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || !strings.HasPrefix(err.Error(), c.want) && !strings.Contains(err.Error(), "no request") {
			t.Errorf("%.50q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestLengthPolicies(t *testing.T) {
	const text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,100,10\n2023-11-16 18:15:47,5000,20\n2023-11-16 18:15:48,90,4000\n"
	read := func(o Options) (Workload, error) {
		o.Models, o.Name = []string{"a", "b"}, "w"
		return Read(strings.NewReader(text), o)
	}
	if _, err := read(Options{MaxTotal: 4000}); err == nil || !strings.Contains(err.Error(), "w:3: prompt of 5000") {
		t.Errorf("refuse: %v", err)
	}
	all, _ := read(Options{})
	w, err := read(Options{MaxInput: 1000, MaxOutput: 1000, Over: OverDrop})
	if err != nil || len(w.Requests) != 1 || w.Reading.Dropped != 2 || w.Requests[0].Model != all.Requests[0].Model {
		t.Errorf("drop: %v %+v", err, w.Reading)
	}
	w, err = read(Options{MaxTotal: 1000, Over: OverClip})
	if err != nil || w.Reading.Clipped != 2 {
		t.Fatalf("clip: %v %+v", err, w.Reading)
	}
	for i, want := range [][2]int{{100, 10}, {980, 20}, {1, 999}} {
		if r := w.Requests[i]; r.InputTokens != want[0] || r.OutputTokens != want[1] || r.Model != all.Requests[i].Model {
			t.Errorf("clip: row %d: %+v, want %v", i, r, want)
		}
	}
	if r := all.Reading; r.Rows != 3 || r.Kept != 3 || r.Policy != "" {
		t.Errorf("%+v", r)
	}
}

func TestEqualBlocksGiveEqualPrompts(t *testing.T) {
	w, err := Read(strings.NewReader(moon), anyModel)
	if err != nil {
		t.Fatal(err)
	}
	a := PromptTokenIDs(1, 0, 700, w.Requests[0].Prompt)
	b := PromptTokenIDs(1, 1, 600, w.Requests[1].Prompt)
	if len(a) != 700 || len(b) != 600 || !slices.Equal(a[:512], b[:512]) || slices.Equal(a[512:516], b[512:516]) {
		t.Error("the first block is shared and the second is not")
	}
	if slices.Equal(a[:4], PromptTokenIDs(2, 0, 4, w.Requests[0].Prompt)) {
		t.Error("the seed must reach the blocks")
	}
	ta, tb := strings.Fields(PromptText(1, 0, 700, w.Requests[0].Prompt)), strings.Fields(PromptText(1, 1, 600, w.Requests[1].Prompt))
	if len(ta) != 700 || len(tb) != 600 || !slices.Equal(ta[:512], tb[:512]) {
		t.Error("text of a shared block differs")
	}
}

func TestTracesOfOthers(t *testing.T) {
	for file, want := range map[string]Form{"AzureLLMInferenceTrace_code.csv": FormAzure, "mooncake_conversation_first400.jsonl": FormMooncake} {
		path := filepath.Join("..", "..", "..", "shared", "data", "traces", file)
		if _, err := os.Stat(path); err != nil {
			t.Skip("the published traces are not beside the checkout")
		}
		w, err := ReadFile(path, Options{Models: []string{"m"}})
		if err != nil || w.Form != want {
			t.Errorf("%s: form %s, %v", file, w.Form, err)
			continue
		}
		if want != FormMooncake {
			continue
		}
		for _, r := range w.Requests {
			if n := (r.InputTokens + 511) / 512; len(r.Blocks) != n {
				t.Errorf("row %s: %d blocks for %d tokens", r.ID, len(r.Blocks), r.InputTokens)
			}
		}
		if len(w.Requests) != 400 {
			t.Errorf("%d requests", len(w.Requests))
		}
	}
}

// fuzzForm reads bytes as one form: whatever they are, it ends with a workload
// that holds what was promised, or with an error that names a line.
func fuzzForm(f *testing.F, form Form, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
		f.Add([]byte(s[:len(s)*2/3]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := Read(strings.NewReader(string(b)), Options{Form: form, Models: []string{"a", "b"}, MaxTotal: 1000, Over: OverClip, MaxRows: 1000})
		var syntax *SyntaxError
		if err != nil {
			if !errors.As(err, &syntax) || syntax.Line < 1 || syntax.Line > strings.Count(string(b), "\n")+1 {
				t.Fatalf("error without a line of the file: %v", err)
			}
			return
		}
		last := int64(0)
		for _, r := range w.Requests {
			if r.AtNs < last || r.Model == "" || (r.Text == "" && (r.InputTokens < 1 || r.InputTokens+r.OutputTokens > 1000)) {
				t.Fatalf("request %+v", r)
			}
			last = r.AtNs
		}
		if w.Reading.Kept != len(w.Requests) || w.Reading.Rows < w.Reading.Kept {
			t.Fatalf("reading %+v of %d", w.Reading, len(w.Requests))
		}
	})
}

func FuzzAzure(f *testing.F)    { fuzzForm(f, FormAzure, azure23, azure24) }
func FuzzBurstGPT(f *testing.F) { fuzzForm(f, FormBurstGPT, burst11, burst12) }
func FuzzMooncake(f *testing.F) { fuzzForm(f, FormMooncake, moon) }
func FuzzBailian(f *testing.F)  { fuzzForm(f, FormBailian, bailian) }
func FuzzTrace(f *testing.F)    { fuzzForm(f, FormTrace, trace) }
func FuzzShareGPT(f *testing.F) { fuzzForm(f, FormShareGPT, share) }
func FuzzPrompts(f *testing.F)  { fuzzForm(f, FormPrompts, prompts) }
func FuzzText(f *testing.F)     { fuzzForm(f, FormText, "one\ntwo\n\nthree") }
func FuzzAnyForm(f *testing.F)  { fuzzForm(f, "", azure23, burst12, moon, bailian, share, prompts) }

// A window that is taken while reading gives what a window of the whole gives.
func TestWindowsWhileReading(t *testing.T) {
	const from, to = 10 * time.Second, 200 * time.Second
	for _, text := range []string{burst11, synthSample, azure24} {
		whole, err := Read(strings.NewReader(text), anyModel)
		if err != nil {
			t.Fatal(err)
		}
		some := anyModel
		some.From, some.To = from, to
		part, err := Read(strings.NewReader(text), some)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(whole.Reading, part.Reading); d != "" || !slices.Equal(whole.Models(), part.Models()) || whole.Digest != part.Digest {
			t.Errorf("a window changes the account of the file: %s, models %v and %v", d, whole.Models(), part.Models())
		}
		a, _, err := whole.AssignModels([]string{"x", "y"}, true)
		if text == azure24 {
			a, _, err = whole.AssignModels([]string{"m"}, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		b, _, _ := part.AssignModels([]string{"x", "y"}, true)
		if text == azure24 {
			b, _, _ = part.AssignModels([]string{"m"}, true)
		}
		wa, errA := a.Window(from, to)
		wb, errB := b.Window(from, to)
		if d := cmp.Diff(wa.Requests, wb.Requests); d != "" || (errA == nil) != (errB == nil) || (errA == nil) == (text == azure24) {
			t.Errorf("%v %v %s", errA, errB, d)
		}
	}
}

func TestTurnsOfConversations(t *testing.T) {
	const file = `[{"conversations": [{"from": "human", "value": "q0"}, {"from": "gpt", "value": "a0"}, {"from": "human", "value": "q1"}, {"from": "gpt", "value": "a1"},
		{"from": "human", "value": "q2"}, {"from": "human", "value": "not an answer"}, {"from": "human", "value": "q3"}, {"from": "gpt", "value": "a3"}]},
	{"conversations": [{"from": "gpt", "value": "begins"}, {"from": "human", "value": "x"}]},
	{"conversations": [{"from": "user", "value": "r0"}, {"from": "assistant", "value": "b0"}]}]`
	read := func(turns int) Workload {
		t.Helper()
		w, err := Read(strings.NewReader(file), Options{Name: "talks.json", Models: []string{"m0", "m1", "m2"}, Seed: 4, Turns: turns})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := read(9)
	if len(w.Requests) != 3 || w.Reading.Failed != 1 {
		t.Fatalf("%+v", w)
	}
	a, b, c := w.Requests[0], w.Requests[1], w.Requests[2]
	if a.ID != "0.0" || a.Conversation != "0" || a.Turn != 0 || a.Text != "q0" || len(a.History) != 0 {
		t.Errorf("%+v", a)
	}
	if want := []Message{{"user", "q0"}, {"assistant", "a0"}}; b.Conversation != "0" || b.Turn != 1 || b.Text != "q1" || !slices.Equal(b.History, want) || b.Model != a.Model {
		t.Errorf("%+v", b)
	}
	if c.Conversation != "1" || c.Text != "r0" || c.Turn != 0 {
		t.Errorf("%+v", c)
	}
	// Fewer turns move no model and no conversation; without, the first turns alone.
	for _, turns := range []int{0, 1} {
		v := read(turns)
		if len(v.Requests) != 2 || v.Requests[0].Model != a.Model || v.Requests[1].Model != c.Model || (v.Requests[1].Conversation == "") != (turns == 0) {
			t.Errorf("%d turns: %+v", turns, v.Requests)
		}
	}
}

// TestTheDocumentHasEveryForm holds docs/workloads.md to what is read.
func TestTheDocumentHasEveryForm(t *testing.T) {
	b, err := os.ReadFile("../../docs/workloads.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range schemas.WorkloadForms {
		if !bytes.Contains(b, []byte("| `"+form+"` |")) {
			t.Errorf("form %s is not in it", form)
		}
	}
	for _, header := range []string{synthHeader, requestsHeader, azureHeader} {
		if !bytes.Contains(b, []byte("header `"+header+"`")) {
			t.Errorf("header %s is not in it", header)
		}
	}
}
