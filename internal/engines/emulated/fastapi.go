package emulated

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"sort"
)

// Servers written with FastAPI refuse a body that is not of their form with status
// 422 and a list of what is wrong.

// invalid is one entry of that list.
type invalid struct {
	Type  string         `json:"type"`
	Loc   []any          `json:"loc"`
	Msg   string         `json:"msg"`
	Input any            `json:"input"`
	Ctx   map[string]any `json:"ctx,omitempty"`
}

func unprocessable(list ...invalid) *apiError {
	return &apiError{status: http.StatusUnprocessableEntity, Message: "the body is not of the form wanted", Type: "invalid_request_error", list: list}
}

// writeDetail answers as such servers do: the detail is a list for a body of the
// wrong form, else an object.
func writeDetail(w http.ResponseWriter, e *apiError) {
	var detail any = e.list
	if e.list == nil {
		detail = map[string]any{"message": e.Message, "type": e.Type, "param": e.Param, "code": nil}
	}
	writeJSON(w, e.status, map[string]any{"detail": detail})
}

// form is what the fields of a body may be.
type form map[string]fieldForm

type fieldForm struct {
	kind     kind
	required bool
	null     bool     // null stands for absent
	min      *float64 // of a number
}

type kind int

const (
	kindAny kind = iota
	kindText
	kindInt
	kindNumber
	kindBool
	kindList
	kindTable
)

var kindWords = map[kind][2]string{
	kindText: {"string_type", "string"}, kindInt: {"int_type", "integer"}, kindNumber: {"float_type", "number"},
	kindBool: {"bool_type", "boolean"}, kindList: {"list_type", "list"}, kindTable: {"dict_type", "dictionary"},
}

func atLeast(n float64) *float64 { return &n }

// read decodes a body and holds it against the form; unknown fields are wrong, or
// left alone with lenient.
func (f form) read(body []byte, lenient bool) (map[string]any, *apiError) {
	dec := json.NewDecoder(bytes.NewReader(body))
	var v any
	err := dec.Decode(&v)
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("extra data")
		}
	}
	if err != nil {
		return nil, unprocessable(invalid{Type: "json_invalid", Loc: []any{"body", dec.InputOffset()}, Msg: "JSON decode error", Input: map[string]any{}, Ctx: map[string]any{"error": err.Error()}})
	}
	table, ok := v.(map[string]any)
	if !ok {
		return nil, unprocessable(invalid{Type: "model_attributes_type", Loc: []any{"body"}, Msg: "Input should be a valid dictionary or object to extract fields from", Input: v})
	}
	if list := f.check(table, lenient); len(list) > 0 {
		return nil, unprocessable(list...)
	}
	return table, nil
}

func (f form) check(table map[string]any, lenient bool) []invalid {
	var list []invalid
	names := make([]string, 0, len(f))
	for name := range f {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		v, there := table[name]
		switch spec := f[name]; {
		case !there && spec.required:
			list = append(list, invalid{Type: "missing", Loc: []any{"body", name}, Msg: "Field required", Input: table})
		case there && !(v == nil && spec.null):
			if bad := spec.check(name, v); bad != nil {
				list = append(list, *bad)
			}
		}
	}
	if lenient {
		return list
	}
	var unknown []string
	for name := range table {
		if _, ok := f[name]; !ok {
			unknown = append(unknown, name)
		}
	}
	sort.Strings(unknown)
	for _, name := range unknown {
		list = append(list, invalid{Type: "extra_forbidden", Loc: []any{"body", name}, Msg: "Extra inputs are not permitted", Input: table[name]})
	}
	return list
}

func (f fieldForm) check(name string, v any) *invalid {
	if !f.kind.is(v) {
		words := kindWords[f.kind]
		return &invalid{Type: words[0], Loc: []any{"body", name}, Msg: "Input should be a valid " + words[1], Input: v}
	}
	if n, ok := v.(float64); ok && f.min != nil && n < *f.min {
		return &invalid{Type: "greater_than_equal", Loc: []any{"body", name}, Msg: "Input should be greater than or equal to " + string(encode(*f.min)), Input: v, Ctx: map[string]any{"ge": *f.min}}
	}
	return nil
}

func (k kind) is(v any) bool {
	switch k {
	case kindText:
		_, ok := v.(string)
		return ok
	case kindBool:
		_, ok := v.(bool)
		return ok
	case kindList:
		_, ok := v.([]any)
		return ok
	case kindTable:
		_, ok := v.(map[string]any)
		return ok
	case kindInt:
		n, ok := v.(float64)
		return ok && n == math.Trunc(n) && math.Abs(n) < 1<<53
	case kindNumber:
		_, ok := v.(float64)
		return ok
	}
	return true
}
