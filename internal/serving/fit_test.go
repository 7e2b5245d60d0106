package serving

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/workload"

	"pgregory.net/rapid"
)

// TestFitRecovers fits points that lie on a plane exactly.
func TestFitRecovers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) float64 { return rapid.Float64Range(1e-6, 1e-3).Draw(rt, name) }
		want := Fit{Prefill: Coefficients{draw("p0"), draw("p1"), draw("p2") * 1e-4}, Decode: Coefficients{draw("d0"), draw("d1") * 1e-2, draw("d2")}}
		points := Grid(BaseModels[0])
		for i, p := range points {
			t, b := float64(p.Input*p.Batch), float64(p.Batch)
			points[i].PrefillS = want.Prefill.At(t, t*float64(p.Input))
			points[i].DecodeS = want.Decode.At(t, b)
		}
		got, err := FitPoints(points)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range 3 {
			near(rt, "prefill", got.Prefill[i], want.Prefill[i], 1e-6*(want.Prefill[0]+want.Prefill[i]))
			near(rt, "decode", got.Decode[i], want.Decode[i], 1e-6*(want.Decode[0]+want.Decode[i]))
		}
		if got.PrefillR2 == nil || *got.PrefillR2 < 1-1e-9 || *got.DecodeR2 < 1-1e-9 {
			rt.Errorf("R^2 of an exact fit: %v, %v", got.PrefillR2, got.DecodeR2)
		}
	})
}

func near(t *rapid.T, what string, got, want, tolerance float64) {
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestFitErrors(t *testing.T) {
	line := []Point{{Index: 1, Input: 16, Batch: 1}, {Index: 2, Input: 16, Batch: 1}, {Index: 4, Input: 16, Batch: 1}}
	for want, points := range map[string][]Point{"2 points to train on": line[:2], "one size": line} {
		if _, err := FitPoints(points); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

func TestGrid(t *testing.T) {
	for i, want := range []int{90, 68, 68} {
		grid := Grid(BaseModels[i])
		if len(grid) != want {
			t.Errorf("%s: %d points, want %d", BaseModels[i].Name, len(grid), want)
		}
		if first := grid[0]; first.Input != 16 || first.Batch != 1 || !first.HeldOut() {
			t.Errorf("%s begins with %+v", BaseModels[i].Name, first)
		}
	}
}

func TestProfileErrors(t *testing.T) {
	good := `{"avg_prefill_latency":2,"prefill_latencies":[1,2,3],"avg_decode_latency":2,"decode_latencies":[1,2,3]}`
	for _, c := range []struct{ text, want string }{
		{`{`, "i16b1.json: not a latency profile"},
		{strings.Replace(good, "[1,2,3]", "[1,2]", 1), "prefill: 2 samples: want 3"},
		{strings.Replace(good, "[1,2,3]", "[1,2,1e999]", 1), "not a latency profile"},
		{strings.Replace(good, "[1,2,3]", "[1,-2,3]", 1), "sample 1 is -2 s"},
		{strings.Replace(good, "[1,2,3]", "[1,2,0]", 1), "sample 2 is 0 s"},
		{strings.Replace(good, ":2,", ":2.1,", 1), "not that of its samples"},
		{strings.Repeat(" ", maxProfileBytes+1), "over the limit"},
		{`{"avg_prefill_latency":2,"avg_decode_latency":2}`, "0 samples"},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "i16b1.json"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadProfile(dir, BaseModels[0]); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: want an error with %q, got %v", c.text, c.want, err)
		}
	}
	if _, err := ReadProfile(t.TempDir(), BaseModels[0]); err == nil || !strings.Contains(err.Error(), "MODEL/DEVICE") {
		t.Errorf("an empty folder gives %v", err)
	}
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte(`{"avg_prefill_latency":2,"prefill_latencies":[1,2,3],"avg_decode_latency":2,"decode_latencies":[1,2,3]}`))
	f.Add([]byte(`{"prefill_latencies":[1e-9,2,3],"decode_latencies":[1,2,"3"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseProfile(b)
		if err != nil {
			return
		}
		if v, err := average(p.AvgDecode, p.Decode); err == nil && (!(v > 0) || math.IsInf(v, 0)) {
			t.Errorf("an average of %v", v)
		}
	})
}

const decided = RequestsHeader + "\n"

func TestInputErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{decided, "w:1: no request"},
		{decided + "0,a,qwen2.5-7b,0,1\n", "w:2: 5 columns"},
		{decided + "0,a,gpt-5,0,1,1\n", `w:2: base model "gpt-5" is not known`},
		{decided + "0,a,yi-9b,0,1,1\n1,a,qwen2.5-7b,0,1,1\n", `w:3: model "a" is an alias of yi-9b`},
		{decided + "0,a,yi-9b,0,1,1\n0,a,yi-9b,0,1,1\n", `w:3: request_id "0" appears twice`},
		{decided + "0,a,yi-9b,-1,1,1\n", "w:2: arrival_ms -1 is out of range"},
		{decided + "0,a,yi-9b,1,0,1\n", "w:2: input_tokens 0 is out of range"},
		{decided + "0,a,yi-9b,1,1,x\n", `w:2: output_tokens "x" is not a whole number`},
		{decided + "0,,yi-9b,1,1,1\n", `w:2: model "" is empty`},
		{decided + strings.Repeat("x", maxLineBytes+1), "w:2: line is longer"},
		{RequestsHeader + ",more\n", "w:1: want the header"},
	} {
		if _, err := readDecided(bufio.NewReaderSize(strings.NewReader(c.text), maxLineBytes), "w"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: want an error with %q, got %v", c.text, c.want, err)
		}
	}
}

// TestInputOrder: requests are brought in order of time, and keep their ids.
func TestInputOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.csv")
	text := strings.ReplaceAll(decided+"b,m,yi-9b,20,1,1\na,m,yi-9b,10,1,1\nc,n,yi-9b,20,1,1\n", "\n", "\r\n")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := ReadInput(path, workload.Options{})
	if err != nil {
		t.Fatal(err)
	}
	order := ""
	for _, r := range in.Requests {
		order += fmt.Sprint(in.IDs[r.Index], r.AtMs, in.Models[r.Model].Name, " ")
	}
	if order != "a10m b20m c20n " {
		t.Errorf("order %q", order)
	}
}

func FuzzInput(f *testing.F) {
	f.Add(decided + "0,a,yi-9b,0,1,1\n1,b,qwen2.5-7b,5,100,20\n")
	f.Add(decided + "0,a,yi-9b,9223372036854775807,1,1\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := readDecided(bufio.NewReaderSize(strings.NewReader(text), maxLineBytes), "w")
		if err != nil {
			return
		}
		before := int64(0)
		for _, r := range in.Requests {
			if r.AtMs < before || r.InputTokens < 1 || r.OutputTokens < 1 || r.Model >= len(in.Models) || r.Index >= len(in.IDs) {
				t.Errorf("request %+v, after one at %d", r, before)
			}
			before = r.AtMs
		}
	})
}
