package emulated

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"assay/schemas"
)

func TestDefaultsAreTheDescribedOnes(t *testing.T) {
	c, err := ParseConfig([]byte(`{"models":[{"name":"m"}],"ready_timeout":"1s","port":8000}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config{TimeScale: 1, TokensPerChunk: 1, Models: []Model{{
		Name: "m", PrefillBase: schemas.Duration(20e6), PrefillPerToken: schemas.Duration(50e3), DecodePerToken: schemas.Duration(10e6), MaxModelLen: 32768,
	}}}
	if d := cmp.Diff(want, c); d != "" {
		t.Error(d)
	}
	b, _ := json.Marshal(c)
	if again, err := ParseConfig(b); err != nil || cmp.Diff(c, again) != "" {
		t.Errorf("its own form reads back as %+v, %v", again, err)
	}
}

func TestConfigErrors(t *testing.T) {
	for in, want := range map[string]string{
		``:                             "EOF",
		`[]`:                           "array",
		`{}`:                           "models: is missing",
		`{"models":[]}`:                "at least one",
		`{"models":[{"name":"m"}]} {}`: "follows",
		`{"models":[{"name":"m","prefil":"1s"}]}`:              "models[0].prefil: unknown key",
		`{"models":[{"name":"m"},{"name":"m"}]}`:               "twice",
		`{"models":[{"name":"m","prefill_base":5}]}`:           "unit",
		`{"models":[{"name":"m","prefill_base":"5"}]}`:         "unit",
		`{"models":[{"name":"m","jitter":2}]}`:                 "jitter: 2 is out of range",
		`{"models":[{"name":"m","max_model_len":1.5}]}`:        "whole",
		`{"models":[{"name":"m"}],"time_scale":0}`:             "time_scale",
		`{"models":[{"name":"m"}],"seed":-1}`:                  "seed",
		`{"models":[{"name":"m"}],"fault":{"kind":"explode"}}`: "none of",
		`{"models":[{"name":"m"}],"fault":{}}`:                 "fault.kind: is missing",
		`{"models":[{"name":"m"}],"Seed":1}`:                   "Seed: unknown key",
		`{"models":{"name":"m"}}`:                              "list",
	} {
		if _, err := ParseConfig([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", in, err, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"models":[{"name":"m","jitter":0.5}],"seed":9007199254740992,"fault":{"kind":"cut","delay":"1h"}}`))
	f.Add([]byte(`{"models":[{"name":"m","prefill_base":"9223372036854775807ns"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseConfig(b)
		if err != nil {
			return
		}
		own, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseConfig(own)
		if err != nil || cmp.Diff(c, again) != "" {
			t.Fatalf("%s reads back as %+v, %v", own, again, err)
		}
	})
}

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","prompt":"a b","max_tokens":3,"ignore_eos":true}`,
		`{"model":"m","prompt":[1,2,3],"min_tokens":1}`,
		`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}],"max_completion_tokens":4}`,
		`{"model":"m","prompt":"p","max_tokens":9223372036854775807}`,
		`{"model":"m","prompt":null,"stop":false,"stream_options":null}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	models := map[string]Model{"m": {Name: "m", PrefillBase: 1, DecodePerToken: 1, Jitter: 1, MaxModelLen: 4096}}
	f.Fuzz(func(t *testing.T, b []byte, chat bool) {
		r, e := parseRequest(b, chat, models)
		if e != nil {
			if e.status < 400 || e.status > 499 || e.Message == "" {
				t.Fatalf("%+v", e)
			}
			return
		}
		if r.promptTokens < 1 || r.maxTokens < 1 || r.minTokens < 0 || r.minTokens > r.maxTokens || r.promptTokens+r.maxTokens > 4096 {
			t.Fatalf("%+v", r)
		}
		o := plan(Config{TimeScale: 1}, r)
		if len(o.ids) < max(1, r.minTokens) || len(o.ids) > r.maxTokens || len(o.due) != len(o.ids) {
			t.Fatalf("%d ids, %d times for %+v", len(o.ids), len(o.due), r)
		}
		for i := 1; i < len(o.due); i++ {
			if o.due[i] < o.due[i-1] {
				t.Fatal("times go back")
			}
		}
	})
}
