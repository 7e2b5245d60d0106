package observe

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReadsTheFormat(t *testing.T) {
	got := map[string]string{}
	kinds := map[string]string{}
	bad, err := EachSample(fixture(t, "vllm.txt"), func(n, k []byte) { kinds[string(n)] = string(k) }, func(s Sample) {
		got[string(s.Series)] = string(s.Value)
		if string(s.Name) == "python_info" {
			labels, err := s.LabelMap()
			if err != nil || labels["version"] != "3.12.3 \"x\\y\n" || labels["implementation"] != "CPython" {
				t.Errorf("labels %q, %v", labels, err)
			}
		}
	})
	if bad != 0 || err != nil || len(got) != 19 {
		t.Fatalf("%d bad, %v, %d samples: %v", bad, err, len(got), got)
	}
	for series, want := range map[string]string{
		`vllm:kv_cache_usage_perc{engine="1",model_name="org/m"}`: "0.5", "process_max_fds": "1.048576e+06", "weird": "NaN", "exemplar_total": "3",
	} {
		if got[series] != want {
			t.Errorf("%s: %q, want %q", series, got[series], want)
		}
	}
	if kinds["vllm:time_to_first_token_seconds"] != "histogram" || kinds["vllm:num_requests_running"] != "gauge" {
		t.Errorf("kinds %v", kinds)
	}
}

func TestBadLinesAreCounted(t *testing.T) {
	for _, line := range []string{
		"1name 3", "name", "name ", "name{a=\"b\" 3", "name{a=b} 3", "name{=\"b\"} 3", "name{a=\"b\"} three", "name 1 2 3", "name 1 soon", "{a=\"b\"} 1", "name{a=\"b\"}", "<html>",
		"name{" + strings.Repeat(`a="b",`, maxLabels+1) + "} 1", "name{a=\"" + strings.Repeat("x", maxLine) + "\"} 1",
	} {
		bad, err := EachSample([]byte("good 1\n"+line+"\nalso_good 2\n"), nil, func(s Sample) {
			if !strings.HasSuffix(string(s.Name), "good") {
				t.Errorf("%.60q was taken as %q", line, s.Series)
			}
		})
		if bad != 1 || err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%.60q: %d bad, %v", line, bad, err)
		}
	}
	twice := Sample{Labels: []byte(`a="1",a="2"`)}
	if _, err := twice.LabelMap(); err == nil {
		t.Error("a label that is there twice was taken")
	}
}

func TestJSONNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"1.5": "1.5", "-0": "-0", "1e+06": "1e+06", "0.5E-3": "0.5E-3", "+3": "3", ".5": "0.5", "1.": "1", "007": "7", "0x10p0": "16", "NaN": `"NaN"`, "+Inf": `"+Inf"`, "1e999": "1e999",
	} {
		if got := string(appendNumber(nil, []byte(text))); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if string(appendNumber(nil, nil)) != "null" {
		t.Error("no value is not null")
	}
}

func FuzzEachSample(f *testing.F) {
	f.Add(fixture(f, "vllm.txt"))
	f.Add([]byte("a{b=\"\\\"\"} 1 2 # {x=\"y\"} 3\n\n#\n# TYPE a counter\nb -Inf"))
	f.Add([]byte("{} 1\na{,} 1\na{b=\"c\",} 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var again bytes.Buffer
		n := 0
		if _, err := EachSample(text, nil, func(s Sample) {
			n++
			again.Write(s.Series)
			again.WriteByte(' ')
			again.Write(s.Value)
			again.WriteByte('\n')
			_, _ = s.LabelMap()
		}); err == nil && n == 0 && bytes.ContainsAny(text, "{}") && !bytes.Contains(text, []byte("#")) {
			t.Errorf("neither samples nor an error: %q", text)
		}
		// What was read reads again as the same.
		m := 0
		if bad, err := EachSample(again.Bytes(), nil, func(Sample) { m++ }); bad != 0 || err != nil || m != n {
			t.Errorf("%d samples, then %d, %d bad, %v", n, m, bad, err)
		}
	})
}
