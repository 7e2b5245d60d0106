package schemas

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a time.Duration written with its unit ("10s", "100ms"). A bare
// number is refused: it has no unit.
type Duration time.Duration

// ParseDuration reads a non-negative duration with a unit.
func ParseDuration(s string) (Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("duration %q has no unit: write it like \"10s\", \"100ms\" or \"1m30s\"", s)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("duration %q: want a number with a unit, like \"10s\", \"100ms\" or \"1m30s\"", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("duration %q is negative", s)
	}
	return Duration(d), nil
}

// Std returns the standard library's type.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// Ms returns milliseconds.
func (d Duration) Ms() float64 { return float64(d) / 1e6 }

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the unit.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := ParseDuration(string(b))
	if err == nil {
		*d = v
	}
	return err
}

// Size is a number of bytes written with its unit ("64MiB", "4 GB").
type Size int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a non-negative size with a unit.
func ParseSize(s string) (Size, error) {
	t := strings.TrimSpace(s)
	for _, u := range sizeUnits {
		num, ok := strings.CutSuffix(t, u.name)
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || f < 0 || math.IsNaN(f) || f*u.bytes >= math.MaxInt64 {
			return 0, fmt.Errorf("size %q: want a non-negative number with a unit, like \"64MiB\" or \"4GB\"", s)
		}
		return Size(f * u.bytes), nil
	}
	return 0, fmt.Errorf("size %q has no unit: write it like \"64MiB\" or \"4GB\"", s)
}

// MarshalText writes whole bytes, which every reader takes back exactly.
func (z Size) MarshalText() ([]byte, error) {
	return []byte(strconv.FormatInt(int64(z), 10) + "B"), nil
}

// UnmarshalText reads any accepted form.
func (z *Size) UnmarshalText(b []byte) error {
	v, err := ParseSize(string(b))
	if err == nil {
		*z = v
	}
	return err
}

// String prints the largest binary unit that keeps three digits.
func (z Size) String() string {
	f, units := float64(z), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return strconv.FormatInt(int64(z), 10) + " B"
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + units[i]
}

// Normalize turns v into plain JSON values (map[string]any, []any, string,
// float64, bool, nil) by one round trip.
func Normalize(v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	err = json.Unmarshal(b, &out)
	return out, err
}
