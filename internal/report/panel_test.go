package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"assay/schemas"

	"pgregory.net/rapid"
)

func line(name string, xy ...float64) schemas.PanelSeries {
	s := schemas.PanelSeries{Name: name}
	for i := 0; i+1 < len(xy); i += 2 {
		s.Points = append(s.Points, schemas.PanelPoint{X: xy[i], Y: xy[i+1], Requests: 10, Finished: 9})
	}
	return s
}

func TestCrossing(t *testing.T) {
	for _, c := range []struct {
		name string
		s    schemas.PanelSeries
		x    float64
		note string
	}{
		{"between two points", line("", 10, 1, 20, 0.8), 15, ""},
		{"the first of several", line("", 0, 1, 1, 0.8, 2, 1, 3, 0.5), 0.5, ""},
		{"at a point", line("", 10, 0.9, 20, 0.8), 10, ""},
		{"never below", line("", 10, 1, 20, 0.95), 0, "more than 20: it stands at 0.95 there"},
		{"always below", line("", 10, 0.5, 20, 0.4), 0, "less than 10: it stands at 0.5 there"},
		{"rising", line("", 0.1, 0.5, 0.3, 1), 0.26, ""},
		{"below at both ends", line("", 1, 0.5, 2, 1, 3, 0.5), 0, "less than 1"},
		{"one point", line("", 7, 1), 0, "more than 7"},
		{"no point", line(""), 0, "no points"},
	} {
		x, note, ok := Crossing(c.s.Points, 0.9)
		if ok != (c.note == "") || math.Abs(x-c.x) > 1e-9 || !strings.Contains(note, c.note) {
			t.Errorf("%s: %v, %q, %v; want %v, %q", c.name, x, note, ok, c.x, c.note)
		}
	}
}

// TestCrossingLiesBetweenItsPoints, where a straight line through them is at the
// target.
func TestCrossingLiesBetweenItsPoints(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s schemas.PanelSeries
		for i := range rapid.IntRange(1, 12).Draw(rt, "points") {
			s.Points = append(s.Points, schemas.PanelPoint{X: float64(i * i), Y: rapid.Float64Range(0, 1).Draw(rt, "y")})
		}
		x, note, ok := Crossing(s.Points, 0.9)
		if ok == (note != "") {
			rt.Fatalf("%v with note %q", ok, note)
		}
		if !ok {
			return
		}
		for i := 1; i < len(s.Points); i++ {
			a, b := s.Points[i-1], s.Points[i]
			if x < a.X || x > b.X {
				continue
			}
			if y := a.Y + (b.Y-a.Y)*(x-a.X)/(b.X-a.X); math.Abs(y-0.9) < 1e-9 {
				return
			}
		}
		rt.Errorf("no line between two points is at the target at %v: %+v", x, s.Points)
	})
}

func twoLines() schemas.Panel {
	p := schemas.Panel{Title: "A & <B>", X: "models", Y: "mean QoS", Target: 0.9, Series: []schemas.PanelSeries{line("one", 10, 1, 20, 0.8), line("two", 10, 1, 20, 1)}}
	ReadLoads(&p)
	return p
}

func TestPanelResultsCanBeNamed(t *testing.T) {
	p := twoLines()
	p.Series = append(p.Series, line("three", 10, 1, 20, 0.9, 30, 0))
	ReadLoads(&p)
	res := PanelResult(p, schemas.SLO{TTFTMs: 10_000, TPOTMs: 100})
	for name, want := range map[string]float64{"load.one": 15, "load.three": 20, "load_ratio.three/one": 20.0 / 15, "qos_at.one@20": 0.8} {
		if v, _, err := Lookup(res, name); err != nil || math.Abs(v-want) > 1e-9 {
			t.Errorf("%s = %v, %v; want %v", name, v, err, want)
		}
	}
	for name, why := range map[string]string{"load.two": "more than 20", "load_ratio.two/one": "more than 1.33", "load_ratio.one/two": "two has no load", "load.four": "does not have it"} {
		if _, _, err := Lookup(res, name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", name, err, why)
		}
	}
	if err := CheckMetric("loads.one"); !errors.Is(err, ErrUnknownMetric) {
		t.Errorf("an unknown name gives %v", err)
	}
	b, err := schemas.Encode(res)
	if err != nil {
		t.Fatal(err)
	}
	if err := schemas.Validate("result", b); err != nil || res.Counts.Issued != 70 || res.Counts.OK != 63 {
		t.Errorf("%v, counts %+v", err, res.Counts)
	}
}

// TestPanelSVGIsWellFormed, says what it shows to those who do not see it, and
// carries both colour schemes.
func TestPanelSVGIsWellFormed(t *testing.T) {
	var one, two bytes.Buffer
	if err := errors.Join(PanelSVG(&one, twoLines()), PanelSVG(&two, twoLines())); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("equal panels give different bytes")
	}
	texts := map[string]string{}
	dec := xml.NewDecoder(&one)
	lines, element := 0, ""
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := tok.(type) {
		case xml.StartElement:
			element = x.Name.Local
			if element == "polyline" {
				lines++
			}
		case xml.CharData:
			texts[element] += string(x)
		}
	}
	if lines != 2 || !strings.HasPrefix(texts["title"], "A & <B>") {
		t.Errorf("%d lines, title %q", lines, texts["title"])
	}
	for element, want := range map[string]string{"desc": "one: 1.000 at 10, 0.800 at 20; it falls below 0.9 at 15.", "style": "prefers-color-scheme:dark", "text": "90 %"} {
		if !strings.Contains(texts[element], want) {
			t.Errorf("<%s> lacks %q: %s", element, want, texts[element])
		}
	}
}

func TestPanelTextFitsItsGrid(t *testing.T) {
	text := PanelText(twoLines())
	for _, want := range []string{"A & <B>\n", "1.00 |", "o one", "models at 0.9: 15\n", "+ two", "more than 20"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	for _, l := range strings.Split(text, "\n") {
		if len(l) > 80 {
			t.Errorf("%d columns: %s", len(l), l)
		}
	}
	for _, p := range []schemas.Panel{{}, {Series: []schemas.PanelSeries{line("x", 1, 2)}}, {Series: []schemas.PanelSeries{line("x", 1, -1, 1, 0.5)}}} {
		var b bytes.Buffer
		if err := PanelSVG(&b, p); err != nil || PanelText(p) == "" || strings.Contains(b.String(), "NaN") {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
