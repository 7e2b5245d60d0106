package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"assay/pipeline"
)

// terminal is a real one with the size given; text is what was drawn on it so far.
func terminal(t *testing.T, columns, rows uint16) (end *os.File, text func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminals can be made here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	end, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals can be made here: %v", err)
	}
	t.Cleanup(func() { end.Close() })
	if err := unix.IoctlSetWinsize(int(end.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows}); err != nil {
		t.Fatal(err)
	}
	var drawn watched
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			_, _ = drawn.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	return end, drawn.String
}

// TestTerminalsWithoutASizeOrAName: each of the two is a cause of its own.
func TestTerminalsWithoutASizeOrAName(t *testing.T) {
	for _, c := range []struct {
		term    string
		columns uint16
		bars    bool
	}{{"xterm", 120, true}, {"xterm", 0, true}, {"dumb", 120, false}, {"", 120, false}, {"dumb", 0, false}} {
		t.Run(fmt.Sprintf("TERM=%s columns=%d", c.term, c.columns), func(t *testing.T) {
			t.Setenv("TERM", c.term)
			end, text := terminal(t, c.columns, 0)
			shown := (&call{stderr: end}).progress()
			if _, bars := shown.(*bars); bars != c.bars {
				t.Fatalf("%T", shown)
			}
			if !c.bars {
				l := shown.(*lines)
				now := time.Now()
				l.now = func() time.Time { return now }
				for range 3 {
					shown.event(pipeline.Event{Type: "progress", Node: "load", Done: 1, Total: 9, Text: "7 in flight, a text"})
					now = now.Add(linesEvery)
				}
				waitFor(t, text, "7 in flight")
				if strings.Contains(text(), "\x1b") {
					t.Errorf("escape sequences: %q", text())
				}
				return
			}
			b := shown.(*bars)
			b.began = b.began.Add(-barDelay)
			for i := int64(1); !strings.Contains(text(), "7 in flight, a text"); i++ {
				b.event(pipeline.Event{Type: "progress", Node: "load", Done: i, Total: i + 100, Text: "7 in flight, a text", NodesTotal: 3})
				time.Sleep(5 * time.Millisecond)
				if i > 2000 {
					t.Fatalf("not drawn: %q", text())
				}
			}
			b.close()
			for _, line := range strings.FieldsFunc(text(), func(r rune) bool { return r == '\n' || r == '\r' || r == '\x1b' }) {
				if n := utf8.RuneCountInString(line); c.columns == 0 && n > assumedColumns+4 {
					t.Errorf("a line of %d characters: %q", n, line)
				}
			}
		})
	}
}

func waitFor(t *testing.T, text func() string, want string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !strings.Contains(text(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q is not in %q", want, text())
		}
	}
}
