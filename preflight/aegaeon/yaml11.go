package aegaeon

import (
	"regexp"
	"strconv"
	"strings"

	"assay/internal/engines/aegaeon"
)

// sort is what YAML 1.1 takes a plain scalar for.
type sort string

const (
	isText  sort = "text"
	isBool  sort = "a boolean"
	isInt   sort = "a whole number"
	isFloat sort = "a number"
	isNull  sort = "null"
	isDate  sort = "a date"
)

// The engine's reader tells types by these rules: yes and off are booleans, 010 is
// eight, 1:30 is ninety, and 1e9 is text for want of a point and a sign.
var (
	bool11  = regexp.MustCompile(`^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$`)
	null11  = regexp.MustCompile(`^(?:~|null|Null|NULL|)$`)
	int11   = regexp.MustCompile(`^[-+]?(?:0b[0-1_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	float11 = regexp.MustCompile(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	date11  = regexp.MustCompile(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:$|[Tt \t])`)

	octal       = regexp.MustCompile(`^[-+]?0[0-7_]+$`)
	sexagesimal = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+`)
	likeNumber  = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?$|^0o[0-7]+$|^0[0-9]+$`)
)

func sortOf(v *aegaeon.Value) sort {
	switch {
	case v.Tag != "":
		return map[string]sort{"!!bool": isBool, "!!int": isInt, "!!float": isFloat, "!!null": isNull, "!!timestamp": isDate}[v.Tag].or(isText)
	case !v.Plain:
		return isText
	case bool11.MatchString(v.Text):
		return isBool
	case null11.MatchString(v.Text):
		return isNull
	case int11.MatchString(v.Text):
		return isInt
	case float11.MatchString(v.Text):
		return isFloat
	case date11.MatchString(v.Text):
		return isDate
	}
	return isText
}

func (s sort) or(other sort) sort {
	if s == "" {
		return other
	}
	return s
}

// trap says how a number that stands without quotes is read otherwise than it looks.
func trap(v *aegaeon.Value) string {
	switch {
	case !v.Plain || v.Kind != aegaeon.Scalar:
		return ""
	case octal.MatchString(v.Text):
		return "begins with 0, which YAML 1.1 reads as octal and others as decimal"
	case sexagesimal.MatchString(v.Text):
		return "has a colon, which YAML 1.1 reads as a number to the base of 60"
	case sortOf(v) == isText && likeNumber.MatchString(v.Text):
		return "looks like a number and is text to YAML 1.1, whose numbers have a point and a sign before the exponent"
	}
	return ""
}

// number is the value of a scalar that YAML 1.1 takes for a number.
func number(v *aegaeon.Value) (float64, bool) {
	text := strings.ReplaceAll(v.Text, "_", "")
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return float64(n), true
	}
	text = strings.Replace(strings.ToLower(text), ".inf", "inf", 1)
	n, err := strconv.ParseFloat(strings.Replace(text, ".nan", "nan", 1), 64)
	return n, err == nil
}
