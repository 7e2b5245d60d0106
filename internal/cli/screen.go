package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/vbauerster/mpb/v8"
	"golang.org/x/sys/unix"
)

// A terminal that does not tell its size is taken to have this one.
const (
	assumedColumns = 80
	assumedRows    = 24
)

// drawsOn says whether bars can be drawn: on a terminal, of whatever size, that
// obeys a cursor's movements. One whose TERM is dumb, or not set, gets lines.
func drawsOn(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	if _, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err != nil {
		return false
	}
	term := os.Getenv("TERM")
	return term != "" && term != "dumb"
}

// newPool draws bars on w.
func newPool(w io.Writer) *mpb.Progress {
	to := mpb.WithOutput(w)
	if f, ok := w.(*os.File); ok && drawsOn(w) {
		to = mpb.WithConsoleWriter(&screen{out: f})
	}
	return mpb.New(to, mpb.WithWidth(48), mpb.WithAutoRefresh())
}

// screen writes lines over those it wrote before. It differs from the library's own
// writer in one thing: a size of 0, as some CI systems, containers and serial
// lines give, is no size.
type screen struct {
	bytes.Buffer
	out *os.File
}

// IsTerminal implements mpb.ConsoleWriter.
func (s *screen) IsTerminal() bool { return true }

// GetTermSize implements mpb.ConsoleWriter.
func (s *screen) GetTermSize() (width, height int, err error) {
	size, err := unix.IoctlGetWinsize(int(s.out.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return assumedColumns, assumedRows, nil //nolint:nilerr // it may have gone away; the write tells
	}
	width, height = int(size.Col), int(size.Row)
	if width == 0 {
		width = assumedColumns
	}
	if height == 0 {
		height = assumedRows
	}
	return width, height, nil
}

// Flush implements mpb.ConsoleWriter: lines is how many the next one overwrites.
func (s *screen) Flush(lines int) error {
	if _, err := s.WriteTo(s.out); err != nil {
		return err
	}
	if lines > 0 {
		fmt.Fprintf(s, "\x1b[%dA\x1b[J", lines)
	}
	return nil
}
