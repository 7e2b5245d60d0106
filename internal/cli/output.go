package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"assay/experiments"
	"assay/schemas"
)

// printf writes a line of a result. Text and JSON exclude each other: with
// --format json it writes nothing. What a terminal would obey is escaped.
func (c *call) printf(format string, args ...any) {
	if !c.asJSON {
		_, _ = io.WriteString(c.stdout, safeText(fmt.Sprintf(format, args...))) // a failed write is remembered by the writer
	}
}

// printJSON writes the one JSON document of the command: null lists and maps as
// empty ones, two spaces of indentation.
func (c *call) printJSON(v any) error {
	canon, err := schemas.Encode(v)
	if err != nil {
		return err
	}
	var plain json.RawMessage = canon
	b, err := json.MarshalIndent(plain, "", "  ")
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	*c.wrote = true
	if _, err := c.stdout.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write to stdout: %w", err)
	}
	return nil
}

type errorDoc struct {
	Error errorBody `json:"error"`
}

type errorBody struct {
	Command  string                `json:"command,omitempty"`
	Message  string                `json:"message"`
	ExitCode int                   `json:"exit_code"`
	Problems []experiments.Problem `json:"problems,omitempty"`
}

func errorDocument(name string, err error, code int) errorDoc {
	doc := errorDoc{errorBody{Command: name, Message: err.Error(), ExitCode: code}}
	var invalid *experiments.InvalidError
	if errors.As(err, &invalid) {
		doc.Error.Problems = invalid.Problems
	}
	return doc
}
