package schemas

import (
	"encoding/json"
	"errors"
	"fmt"
)

// PlainJSON words what encoding/json says about a value of a wrong type, without
// the names of this program's own types.
func PlainJSON(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	want := map[string]string{"int": "a whole number", "int64": "a whole number", "uint64": "a whole number", "float64": "a number", "bool": "true or false", "map": "an object", "string": "a text", "slice": "a list", "struct": "an object", "ptr": "an object"}[wrong.Type.Kind().String()]
	if want == "" {
		want = "another type"
	}
	field := wrong.Field
	if field == "" {
		field = "it"
	}
	return fmt.Errorf("%s holds %s: want %s", field, wrong.Value, want)
}
