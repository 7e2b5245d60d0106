package experiments

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"assay/schemas"
)

// maxFileBytes bounds experiment and machine files.
const maxFileBytes = 4 << 20

// decodeTOML returns the file as plain JSON values with the position of every
// key. Faults go to p.
func decodeTOML(p *problems, data []byte) map[string]any {
	if len(data) > maxFileBytes {
		p.add(Position{1, 1}, "", "the file has %d bytes: at most %d are read", len(data), maxFileBytes)
		return nil
	}
	text := strings.TrimPrefix(string(data), "\ufeff")
	if !utf8.ValidString(text) {
		p.add(invalidUTF8(text), "", "the file is not UTF-8")
		return nil
	}
	pos, duplicates, err := scan(text)
	if limit := (*limitError)(nil); errors.As(err, &limit) {
		p.add(limit.where, "", "%s", limit.message)
		return nil
	}
	tree, err := parseTOML(text)
	if err != nil {
		where, message := tomlFault(text, err)
		if len(duplicates) > 0 && strings.Contains(message, "already been defined") {
			d := duplicates[0]
			where, message = d.second, fmt.Sprintf("%s, at %d:%d", message, d.first.Line, d.first.Column)
		}
		p.add(where, "", "%s", message)
		return nil
	}
	p.pos = pos
	return plainTable(p, tree, "")
}

// invalidUTF8 finds the first byte that is not UTF-8.
func invalidUTF8(text string) Position {
	where := Position{Line: 1, Column: 1}
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		if where.Column++; r == '\n' {
			where = Position{Line: where.Line + 1, Column: 1}
		}
		i += size
	}
	return where
}

// parseTOML calls the library, which panics on what it holds to be impossible.
func parseTOML(text string) (tree map[string]any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the TOML library gave up: %v", r)
		}
	}()
	_, err = toml.Decode(text, &tree)
	return tree, err
}

// tomlFault turns the library's error into a position in characters and a message.
func tomlFault(text string, err error) (Position, string) {
	var fault toml.ParseError
	if !errors.As(err, &fault) {
		return Position{1, 1}, strings.TrimPrefix(err.Error(), "toml: ")
	}
	lines := strings.Split(text, "\n")
	where := Position{Line: max(fault.Position.Line, 1), Column: max(fault.Position.Col, 1)}
	if where.Line <= len(lines) {
		line := lines[where.Line-1]
		where.Column = utf8.RuneCountInString(line[:min(where.Column-1, len(line))]) + 1
	}
	message := fault.Message
	if message != "" {
		message = strings.ToLower(message[:1]) + message[1:]
	}
	return where, strings.TrimSuffix(message, ".")
}

// decodeJSON reads an archived effective experiment. It has no positions.
func decodeJSON(p *problems, data []byte) map[string]any {
	if len(data) > maxFileBytes {
		p.add(Position{}, "", "the document has %d bytes: at most %d are read", len(data), maxFileBytes)
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil || tree == nil {
		p.add(Position{}, "", "not a JSON object: %v", err)
		return nil
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		p.add(Position{}, "", "something follows the JSON document")
		return nil
	}
	return plainTable(p, tree, "")
}

// plainTable turns the library's values into those of JSON, which is what keys
// and archives are made of, and refuses what JSON cannot carry.
func plainTable(p *problems, table map[string]any, at string) map[string]any {
	out := make(map[string]any, len(table))
	for k, v := range table {
		out[k] = plainValue(p, v, at+schemas.Pointer(k))
	}
	return out
}

func plainValue(p *problems, v any, at string) any {
	switch x := v.(type) {
	case map[string]any:
		return plainTable(p, x, at)
	case []map[string]any:
		out := make([]any, len(x))
		for i, t := range x {
			out[i] = plainTable(p, t, at+"/"+strconv.Itoa(i))
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = plainValue(p, e, at+"/"+strconv.Itoa(i))
		}
		return out
	case int64:
		if x > schemas.MaxInteger || x < -schemas.MaxInteger {
			p.at(at, "", "%d is beyond the largest whole number a document can carry exactly, %d", x, int64(schemas.MaxInteger))
		}
		return float64(x)
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			p.at(at, "", "%v is not a number that can be used", x)
			return 0.0
		}
	case time.Time:
		p.at(at, "", "dates and times are not used here: write a string")
		return ""
	}
	return v
}
