package schemas

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// MaxInteger is the largest whole number a document can carry: RFC 8785 numbers
// are IEEE doubles, and a larger one would silently become another.
const MaxInteger = 1<<53 - 1

// Encode returns the canonical JSON of a document. Nil slices and maps of
// required fields become [] and {}, as the JSON Schemas demand; a whole number
// beyond MaxInteger is refused rather than rounded.
func Encode(v any) ([]byte, error) {
	filled, err := fill(reflect.ValueOf(v))
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	if !filled.IsValid() {
		return Canonical(nil)
	}
	return Canonical(filled.Interface())
}

var marshalerType = reflect.TypeFor[json.Marshaler]()

// fill copies v with nil slices and maps made empty. Values that marshal
// themselves are kept as they are.
func fill(v reflect.Value) (reflect.Value, error) {
	if !v.IsValid() || v.Type().Implements(marshalerType) {
		return v, nil
	}
	switch v.Kind() {
	case reflect.Struct:
		return fillStruct(v)
	case reflect.Slice:
		return fillSlice(v)
	case reflect.Map:
		return fillMap(v)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return v, nil
		}
		inner, err := fill(v.Elem())
		if err != nil || v.Kind() == reflect.Interface {
			return inner, err
		}
		p := reflect.New(v.Type().Elem())
		p.Elem().Set(inner)
		return p, nil
	case reflect.Int, reflect.Int64:
		if n := v.Int(); n > MaxInteger || n < -MaxInteger {
			return v, fmt.Errorf("%d is beyond the largest whole number a document can carry exactly", n)
		}
	case reflect.Uint, reflect.Uint64:
		if n := v.Uint(); n > MaxInteger {
			return v, fmt.Errorf("%d is beyond the largest whole number a document can carry exactly", n)
		}
	}
	return v, nil
}

func fillStruct(v reflect.Value) (reflect.Value, error) {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		tag := f.Tag.Get("json")
		if !f.IsExported() || tag == "-" {
			continue
		}
		x := v.Field(i)
		if k := x.Kind(); (k == reflect.Slice || k == reflect.Map) && x.IsNil() && strings.Contains(tag, ",omitempty") {
			continue
		}
		filled, err := fill(x)
		if err != nil {
			return v, fmt.Errorf("%s: %w", f.Name, err)
		}
		if filled.IsValid() {
			out.Field(i).Set(filled)
		}
	}
	return out, nil
}

func fillSlice(v reflect.Value) (reflect.Value, error) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return v, nil
	}
	out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		e, err := fill(v.Index(i))
		if err != nil {
			return v, fmt.Errorf("%d: %w", i, err)
		}
		if e.IsValid() {
			out.Index(i).Set(e)
		}
	}
	return out, nil
}

func fillMap(v reflect.Value) (reflect.Value, error) {
	out := reflect.MakeMapWithSize(v.Type(), v.Len())
	for it := v.MapRange(); it.Next(); {
		e, err := fill(it.Value())
		if err != nil {
			return v, fmt.Errorf("%v: %w", it.Key(), err)
		}
		if e.IsValid() {
			out.SetMapIndex(it.Key(), e)
		}
	}
	return out, nil
}
