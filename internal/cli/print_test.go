package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"assay/archive"
	"assay/pipeline"
	"assay/schemas"
)

func TestWantsJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"ls --format json": true, "--format=json ls": true, "ls -format json": true, "ls": false,
		"ls --format text": false, "cat x -- --format json": false, "ls --format": false, "ls format=json": false,
	} {
		if got := wantsJSON(strings.Fields(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

// TestJSONAlwaysParses gives every command nothing to work with: what it prints
// is one JSON document whose exit code is the process's.
func TestJSONAlwaysParses(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, c := range allCommands() {
		if c.name == "doctor" || c.name == "version" || c.name == "schema" || c.name == "init" {
			continue // they succeed
		}
		var out, errs bytes.Buffer
		code := Run(context.Background(), append([]string{c.name, "--format", "json"}, arguments(c)...), strings.NewReader(""), &out, &errs)
		var doc errorDoc
		dec := json.NewDecoder(&out)
		if err := dec.Decode(&doc); err != nil {
			t.Errorf("%s: %v (stderr %q)", c.name, err, &errs)
			continue
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: something follows the document", c.name)
		}
		if code == 0 || doc.Error.ExitCode != code || doc.Error.Message == "" {
			t.Errorf("%s: exit code %d, document %+v", c.name, code, doc)
		}
		if !strings.HasPrefix(errs.String(), "assay "+c.name+": ") {
			t.Errorf("%s: stderr %q", c.name, &errs)
		}
	}
}

// TestEveryCommandIsDescribed checks that help has all its parts.
func TestEveryCommandIsDescribed(t *testing.T) {
	for _, c := range allCommands() {
		var out bytes.Buffer
		if code := Run(context.Background(), []string{c.name, "--help"}, strings.NewReader(""), &out, io.Discard); code != 0 {
			t.Errorf("%s --help: exit code %d", c.name, code)
		}
		for _, want := range []string{"assay " + c.name, c.summary, "EXAMPLE\n   " + strings.SplitN(c.example, "\n", 2)[0], "--format", "--store DIR", "--quiet"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s --help does not say %q:\n%s", c.name, want, &out)
			}
		}
		if !strings.HasPrefix(c.example, "assay ") {
			t.Errorf("%s: example %q", c.name, c.example)
		}
	}
}

func TestParseAccelerators(t *testing.T) {
	got, err := parseNvidia([]byte("0, NVIDIA H800, 81559 MiB, 550.54.15\n1, NVIDIA H800, 81559 MiB, 550.54.15\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []schemas.Accelerator{{Index: 0, Name: "NVIDIA H800", Memory: "81559 MiB", Driver: "550.54.15"}, {Index: 1, Name: "NVIDIA H800", Memory: "81559 MiB", Driver: "550.54.15"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"x, y, z, w\n", "0, only\n", "\"unclosed\n"} {
		if _, err := parseNvidia([]byte(bad)); err == nil {
			t.Errorf("nvidia-smi output %q is taken", bad)
		}
	}
	got, err = parseNPU([]byte("\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n" +
		"\t0                              0                              0                              Ascend 910B3\n" +
		"\t0                              1                              -                              Mcu\n" +
		"\t1                              0                              1                              Ascend 910B3\n"))
	if err != nil {
		t.Fatal(err)
	}
	want = []schemas.Accelerator{{Index: 0, Name: "Ascend 910B3"}, {Index: 1, Name: "Ascend 910B3"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFindingsWorstFirst(t *testing.T) {
	findings := []schemas.Finding{
		{ID: "a", Severity: schemas.SeverityPass, Subject: "disk", Message: "room"},
		{ID: "b", Severity: schemas.SeverityWarning, Subject: "path", Message: "old"},
		{ID: "c", Severity: schemas.SeverityPass, Subject: "path", Message: "there"},
		{ID: "d", Severity: schemas.SeverityError, Subject: "port", Message: "taken", Remedy: "free it"},
		{ID: "e", Severity: schemas.SeverityError, Subject: "path", Message: "gone", File: "x.toml", Line: 3, Column: 4},
	}
	const want = `  error    path: gone [e]
           at x.toml:3:4
  warning  path: old [b]
  pass     path: there [c]
  error    port: taken [d]
           do: free it
  pass     disk: room [a]
`
	if diff := cmp.Diff(want, findingsText(findings)); diff != "" {
		t.Error(diff)
	}
	if got := countSeverities(findings); got != "2 error, 1 warning, 2 pass" {
		t.Error(got)
	}
}

func TestBlocking(t *testing.T) {
	unknown := schemas.Finding{ID: "port.free", Severity: schemas.SeverityUnknown}
	for name, c := range map[string]struct {
		findings []schemas.Finding
		allow    []string
		want     bool
	}{
		"nothing":          {nil, nil, false},
		"warning":          {[]schemas.Finding{{Severity: schemas.SeverityWarning}}, nil, false},
		"deferred":         {[]schemas.Finding{{Severity: schemas.SeverityDeferred}}, nil, false},
		"error":            {[]schemas.Finding{{ID: "port.free", Severity: schemas.SeverityError}}, []string{"port.free"}, true},
		"unknown":          {[]schemas.Finding{unknown}, nil, true},
		"unknown, allowed": {[]schemas.Finding{unknown}, []string{"port.free"}, false},
		"another allowed":  {[]schemas.Finding{unknown}, []string{"disk.room"}, true},
	} {
		if got := blocking(c.findings, c.allow); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPercentileText(t *testing.T) {
	v, above := 1234.5, 60000.0
	s := schemas.Summary{Percentiles: []schemas.Percentile{{P: 50, Value: &v}, {P: 95, Above: &above, Few: true}, {P: 99}}}
	for p, want := range map[float64]string{50: "1234", 95: ">60000*", 99: "—", 90: "—"} {
		if got := percentile(s, p); got != want {
			t.Errorf("p%v is %q, want %q", p, got, want)
		}
	}
	for f, want := range map[float64]string{0: "0", 0.12345: "0.123", 12.345: "12.35", 123.45: "123.5", -5: "-5.000"} {
		if got := number(f); got != want {
			t.Errorf("%v prints as %q, want %q", f, got, want)
		}
	}
}

// TestEmulatedIsSaid checks that a table of made-up numbers says so, and one of
// real ones does not.
func TestEmulatedIsSaid(t *testing.T) {
	for _, emulated := range []bool{true, false} {
		rep := schemas.Report{Emulated: emulated, Results: []schemas.StageResult{{Stage: "load", Result: schemas.Result{Emulated: emulated, Comparable: true, Headline: "ttft_ms"}}}}
		for name, text := range map[string]string{"report": reportText(rep), "results": resultTable(rep)} {
			if got := strings.Contains(text, emulatedMark); got != emulated {
				t.Errorf("%s of emulated=%v:\n%s", name, emulated, text)
			}
		}
	}
}

func TestProgressLines(t *testing.T) {
	var b bytes.Buffer
	now := time.Now()
	l := newLines(&b, func() time.Time { return now })
	l.event(pipeline.Event{Type: "start", Node: "a"})
	l.event(pipeline.Event{Type: "end", Node: "a", Status: schemas.StageFailed, Text: "first\nsecond", NodesDone: 1, NodesTotal: 2})
	for range 12 { // a line each 5 s, and none at once
		l.event(pipeline.Event{Type: "progress", Node: "b", Done: 1, Total: 2, Text: "1 of 2 done, 1 in flight"})
		now = now.Add(time.Second)
	}
	l.event(pipeline.Event{Type: "finding", Finding: &schemas.Finding{Severity: schemas.SeverityInfo, Subject: "s", Message: "quiet"}})
	l.event(pipeline.Event{Type: "finding", Finding: &schemas.Finding{Severity: schemas.SeverityWarning, Subject: "s", Message: "loud"}})
	if diff := cmp.Diff("[1/2] a failed after 0s: first\nb: 1 of 2 done, 1 in flight\nb: 1 of 2 done, 1 in flight\nwarning: s: loud\n", b.String()); diff != "" {
		t.Error(diff)
	}
}

// watched is what a terminal was sent, read while it is written.
type watched struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func TestProgressBars(t *testing.T) {
	var w watched
	b := newBars(&w)
	deadline := time.Now().Add(10 * time.Second)
	for i := int64(1); !strings.Contains(w.String(), "in flight") || !strings.Contains(w.String(), "0/3"); i++ {
		b.event(pipeline.Event{Type: "progress", Node: "load", Done: i, Total: i + 100, Text: "7 in flight", NodesTotal: 3})
		if time.Now().After(deadline) {
			t.Fatalf("not drawn: %q", w.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.event(pipeline.Event{Type: "end", Node: "load", NodesDone: 1, NodesTotal: 3})
	b.close()
	alone := newBars(&w) // a load that is no run's
	alone.event(pipeline.Event{Type: "progress", Node: "load", Done: 1, Total: 2, Text: "x"})
	alone.close()
}

// A bar appears only when there was something to wait for, and says the phase, the
// bytes, the rate and the time that is left.
func TestByteBarWaitsASecond(t *testing.T) {
	var quick watched
	b := newByteBar(&quick, time.Now().Add(time.Hour))
	for i := range int64(20) {
		b.show(archive.Progress{Phase: archive.PhaseVerify, Done: i, Total: 20})
	}
	b.close()
	if quick.String() != "" {
		t.Errorf("a quick operation shows %q", quick.String())
	}
	var slow watched
	b = newByteBar(&slow, time.Now())
	deadline := time.Now().Add(10 * time.Second)
	for i := int64(0); ; i++ {
		b.show(archive.Progress{Phase: archive.PhaseMark, Done: i % 1000, Total: 1000})
		if got := slow.String(); strings.Contains(got, "mark") && strings.Contains(got, "/1000") && strings.Contains(got, "/s") && strings.Contains(got, "left") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not drawn: %q", slow.String())
		}
		time.Sleep(time.Millisecond)
	}
	for i := int64(1); ; i++ {
		b.show(archive.Progress{Phase: archive.PhaseDelete, Done: i << 20, Total: 1 << 40})
		if got := slow.String(); strings.Contains(got, "delete") && strings.Contains(got, "MiB/") && strings.Contains(got, "MiB/s") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not drawn: %q", slow.String())
		}
		time.Sleep(time.Millisecond)
	}
	b.close()
}
