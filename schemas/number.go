package schemas

import (
	"math"
	"strconv"
	"strings"
)

// Decimal is a number for people: every digit it has and no exponent.
func Decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Rounded is a number for people: that many significant digits or, where it has
// more before the point, those; no exponent, and no zeros at the end.
func Rounded(f float64, digits int) string {
	if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return Decimal(f)
	}
	after := digits - 1 - int(math.Floor(math.Log10(math.Abs(f))))
	text := strconv.FormatFloat(f, 'f', max(after, 0), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// PlainText is a scalar of a document for people.
func PlainText(v any) string {
	if f, ok := v.(float64); ok {
		return Decimal(f)
	}
	return scalarText(v)
}
