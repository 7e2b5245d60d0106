package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// smiFields are asked in this order; the name may hold a comma and comes last.
var smiFields = []string{"index", "uuid", "timestamp", "power.draw", "utilization.gpu", "memory.used", "clocks.current.sm", "clocks.current.memory", "temperature.gpu", "name"}

// SMICommand is the command that prints a row for each GPU at every interval, with
// units in every value.
func SMICommand(interval time.Duration) []string {
	return []string{smiProgram, "--query-gpu=" + strings.Join(smiFields, ","), "--format=csv", "--loop-ms=" + strconv.FormatInt(interval.Milliseconds(), 10)}
}

var errSMIHeader = errors.New("the line of headings")

// ParseSMIRow reads a row that SMICommand's command printed. A value must carry
// the unit that is expected; one the device does not tell is nil.
func ParseSMIRow(line []byte) (GPU, error) {
	f := strings.SplitN(strings.ToValidUTF8(string(line), "\uFFFD"), ",", len(smiFields))
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	if f[0] == "index" {
		return GPU{}, errSMIHeader
	}
	if len(f) != len(smiFields) {
		return GPU{}, fmt.Errorf("%s: %d columns, want %d: %.120s", smiProgram, len(f), len(smiFields), strings.Join(f, ", "))
	}
	index, err := strconv.Atoi(f[0])
	if err != nil || index < 0 || index > 1<<16 {
		return GPU{}, fmt.Errorf("%s: index %.20q", smiProgram, f[0])
	}
	g := GPU{Index: index, UUID: f[1], Timestamp: f[2], Name: f[9]}
	for _, c := range []struct {
		at    int
		unit  string
		scale float64
		to    **float64
	}{{3, "W", 1, &g.PowerW}, {4, "%", 1, &g.UseRatio}, {5, "MiB", 1 << 20, &g.MemoryBytes}, {6, "MHz", 1, &g.SMClockMHz}, {7, "MHz", 1, &g.MemClockMHz}, {8, "", 1, &g.TempC}} {
		if *c.to, err = smiValue(f[c.at], c.unit, c.scale); err != nil {
			return GPU{}, fmt.Errorf("%s: %s: %w", smiProgram, smiFields[c.at], err)
		}
	}
	g.UseRatio = ofPercent(g.UseRatio)
	return g, nil
}

// smiValue reads "65.32 W". "[N/A]", "[Not Supported]" and the like are no value.
func smiValue(text, unit string, scale float64) (*float64, error) {
	if strings.HasPrefix(text, "[") || text == "N/A" {
		return nil, nil
	}
	word, got, _ := strings.Cut(text, " ")
	if got != unit {
		return nil, fmt.Errorf("%.40q is not in %q", text, unit)
	}
	v, err := strconv.ParseFloat(word, 64)
	if err != nil || v != v || v < -1e12 || v > 1e12 {
		return nil, fmt.Errorf("%.40q is not a number", text)
	}
	v *= scale
	return &v, nil
}

// lineWriter hands over whole lines. A line that is too long is dropped.
type lineWriter struct {
	line func([]byte)
	buf  []byte
	skip bool
}

var _ io.Writer = (*lineWriter)(nil)

func (w *lineWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if w.skip = w.skip || len(w.buf)+len(part) > maxLine; !w.skip {
			w.buf = append(w.buf, part...)
		}
		if !whole {
			break
		}
		if line := bytes.TrimSpace(w.buf); !w.skip && len(line) > 0 {
			w.line(line)
		}
		w.buf, w.skip = w.buf[:0], false
	}
	return len(b), nil
}

// limited keeps the first n bytes.
type limited struct {
	b *bytes.Buffer
	n int
}

func (l *limited) Write(b []byte) (int, error) {
	if room := l.n - l.b.Len(); room > 0 {
		l.b.Write(b[:min(len(b), room)])
	}
	return len(b), nil
}
