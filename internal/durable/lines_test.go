package durable_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"assay/internal/durable"
)

func goesOn(line []byte) bool { return bytes.Contains(line, []byte(`"start"`)) }

func journalOf(n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, durable.SumLine(fmt.Appendf(nil, `{"event":"record","n":%d}`, i))...)
	}
	return b
}

// Every changed byte of a line that is not the last is found, and a journal cut at
// any byte has the lines that are whole.
func TestSummedLines(t *testing.T) {
	whole := journalOf(3)
	if lines, err := durable.SummedLines(whole, goesOn); err != nil || len(lines) != 3 || !json.Valid(lines[1]) {
		t.Fatalf("%q, %v", lines, err)
	}
	for at := range whole {
		cut := whole[:at]
		if lines, err := durable.SummedLines(cut, goesOn); err != nil || len(lines) != bytes.Count(cut, []byte("\n")) {
			t.Errorf("cut at %d: %d lines, %v", at, len(lines), err)
		}
		if at == len(whole)-1 {
			continue // without its last newline a line is torn
		}
		bad := bytes.Clone(whole)
		bad[at] ^= 1
		var line *durable.LineError
		if lines, err := durable.SummedLines(bad, goesOn); !errors.As(err, &line) || line.Line != len(lines)+1 {
			t.Errorf("byte %d changed: %d lines, %v", at, len(lines), err)
		}
	}
}

func TestSummedLinesByHand(t *testing.T) {
	start := string(durable.SumLine([]byte(`{"event":"start"}`)))
	for text, want := range map[string]struct {
		lines, fault int
	}{
		"":                                   {0, 0},
		"{}\n{}\n":                           {2, 0}, // an earlier version's
		"{}\n\n{}\n":                         {1, 2},
		"\n":                                 {0, 1},
		"[]\n":                               {0, 1},
		start + "{\"event\":\"rec\n" + start: {2, 0}, // torn, and gone on with
		start + "{\"event\":\"rec\n":         {1, 2},
		start + "{}\n" + start:               {2, 0},
		start + "{}\n":                       {1, 2},
	} {
		lines, err := durable.SummedLines([]byte(text), goesOn)
		var line *durable.LineError
		if errors.As(err, &line); len(lines) != want.lines || (line == nil) != (want.fault == 0) || line != nil && line.Line != want.fault {
			t.Errorf("%q: %d lines, %v, want %+v", text, len(lines), err, want)
		}
	}
}

func FuzzSummedLines(f *testing.F) {
	f.Add(journalOf(2))
	f.Add([]byte("{}\n{\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, _ := durable.SummedLines(b, goesOn)
		for _, l := range lines {
			if !json.Valid(l) {
				t.Errorf("accepted %q", l)
			}
		}
	})
}
