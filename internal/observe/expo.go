package observe

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of a text of metrics. What is beyond is a bad line.
const (
	maxLine   = 64 << 10
	maxLabels = 64
)

// Sample is one line of a text of metrics. Its parts are slices of the text.
type Sample struct {
	Series []byte // name and labels, as written
	Name   []byte
	Labels []byte // between the braces, nil without them
	Value  []byte
}

// EachSample reads the Prometheus text format (0.0.4, and what OpenMetrics adds to
// a line). A line that cannot be read is counted and left out; the first error is
// returned with the count. typ is called for each TYPE comment.
func EachSample(text []byte, typ func(name, kind []byte), sample func(Sample)) (bad int, first error) {
	number := 0
	fail := func(err error) {
		bad++
		if first == nil {
			first = fmt.Errorf("line %d: %w", number, err)
		}
	}
	for len(text) > 0 {
		number++
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		if len(line) > maxLine {
			fail(fmt.Errorf("%d bytes, more than %d", len(line), maxLine))
			continue
		}
		line = bytes.Trim(line, " \t\r")
		switch {
		case len(line) == 0:
		case line[0] == '#':
			readComment(line[1:], typ)
		default:
			s, err := readSample(line)
			if err != nil {
				fail(err)
				continue
			}
			sample(s)
		}
	}
	return bad, first
}

// cutWord returns the first word of b and what follows it.
func cutWord(b []byte) (word, rest []byte) {
	b = bytes.TrimLeft(b, " \t")
	if i := bytes.IndexAny(b, " \t"); i >= 0 {
		return b[:i], bytes.TrimLeft(b[i:], " \t")
	}
	return b, nil
}

func readComment(line []byte, typ func(name, kind []byte)) {
	f := bytes.Fields(line)
	if len(f) == 3 && string(f[0]) == "TYPE" && nameEnd(f[1]) == len(f[1]) && typ != nil {
		typ(f[1], f[2])
	}
}

func readSample(line []byte) (Sample, error) {
	end := nameEnd(line)
	if end == 0 {
		return Sample{}, errors.New("does not begin with the name of a metric")
	}
	s := Sample{Name: line[:end], Series: line[:end]}
	rest := line[end:]
	if open := bytes.TrimLeft(rest, " \t"); len(open) > 0 && open[0] == '{' {
		size, err := labelsEnd(open)
		if err != nil {
			return Sample{}, err
		}
		s.Labels = open[1 : size-1]
		rest = open[size:]
		s.Series = line[:len(line)-len(rest)]
	} else if len(rest) == len(open) {
		return Sample{}, errors.New("no space between name and value")
	}
	if i := bytes.Index(rest, []byte(" # ")); i >= 0 { // an exemplar
		rest = rest[:i]
	}
	value, after := cutWord(rest)
	stamp, more := cutWord(after)
	switch {
	case len(value) == 0:
		return Sample{}, errors.New("no value after the series")
	case len(more) > 0:
		return Sample{}, errors.New("more after the series than a value and a time")
	case !isNumber(value):
		return Sample{}, errors.New("its value is not a number")
	case len(stamp) > 0 && !isNumber(stamp):
		return Sample{}, errors.New("its time is not one")
	}
	s.Value = value
	return s, nil
}

// nameEnd is how many bytes of b are the name of a metric.
func nameEnd(b []byte) int {
	for i, c := range b {
		if !isNameByte(c, i) && (c != ':') {
			return i
		}
	}
	return len(b)
}

func isNameByte(c byte, at int) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || at > 0 && '0' <= c && c <= '9'
}

// labelsEnd is how many bytes the braces at the beginning of b take.
func labelsEnd(b []byte) (int, error) {
	rest, err := eachLabel(b[1:], func(_, _ []byte) error { return nil })
	if err != nil {
		return 0, err
	}
	return len(b) - len(rest), nil
}

// eachLabel reads labels up to and including the closing brace, and returns what
// follows. Values are as written, escapes and all.
func eachLabel(b []byte, label func(name, value []byte) error) ([]byte, error) {
	for n := 0; ; n++ {
		b = bytes.TrimLeft(b, " \t")
		if len(b) > 0 && b[0] == '}' {
			return b[1:], nil
		}
		if n == maxLabels {
			return nil, fmt.Errorf("more than %d labels", maxLabels)
		}
		end := 0
		for end < len(b) && isNameByte(b[end], end) {
			end++
		}
		name := b[:end]
		b = bytes.TrimLeft(b[end:], " \t")
		if end == 0 || len(b) == 0 || b[0] != '=' {
			return nil, errors.New("labels: want name=\"value\"")
		}
		b = bytes.TrimLeft(b[1:], " \t")
		size := quotedEnd(b)
		if size < 0 {
			return nil, fmt.Errorf("labels: the value of %s is not in quotes", name)
		}
		if err := label(name, b[1:size-1]); err != nil {
			return nil, err
		}
		b = bytes.TrimLeft(b[size:], " \t")
		if len(b) > 0 && b[0] == ',' {
			b = b[1:]
		} else if len(b) == 0 || b[0] != '}' {
			return nil, errors.New("labels: no closing brace")
		}
	}
}

// quotedEnd is how many bytes the quoted text at the beginning of b takes, -1 for
// none.
func quotedEnd(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return -1
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// LabelMap reads the labels of a sample.
func (s Sample) LabelMap() (map[string]string, error) {
	out := map[string]string{}
	if s.Labels == nil {
		return out, nil
	}
	_, err := eachLabel(append(bytes.Clone(s.Labels), '}'), func(name, value []byte) error {
		if _, twice := out[string(name)]; twice {
			return fmt.Errorf("label %s is there twice", name)
		}
		out[string(name)] = strings.ToValidUTF8(unescape.Replace(string(value)), "\uFFFD")
		return nil
	})
	return out, err
}

// isNumber reports whether b is a number as metrics have them.
func isNumber(b []byte) bool {
	if isJSONNumber(b) {
		return true
	}
	switch string(b) {
	case "NaN", "+Inf", "-Inf", "Inf":
		return true
	}
	_, err := strconv.ParseFloat(string(b), 64)
	return err == nil
}

// isJSONNumber reports whether b can stand in JSON as it is.
func isJSONNumber(b []byte) bool {
	i := 0
	digits := func() int {
		from := i
		for i < len(b) && '0' <= b[i] && b[i] <= '9' {
			i++
		}
		return i - from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	zero := i < len(b) && b[i] == '0'
	if n := digits(); n == 0 || zero && n > 1 {
		return false
	}
	if i < len(b) && b[i] == '.' {
		i++
		if digits() == 0 {
			return false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if digits() == 0 {
			return false
		}
	}
	return i > 0 && i == len(b)
}
