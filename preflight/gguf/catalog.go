package gguf

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	const rule = "a GGUF file is whole and of a form that engines read"
	var out []preflight.Entry
	for _, c := range []struct{ id, checks string }{
		{"gguf.magic", "the file begins as a GGUF file does"},
		{"gguf.version", "the format's version is one in use"},
		{"gguf.byte-order", "numbers are little-endian"},
		{"gguf.truncated", "the header is whole"},
		{"gguf.limit", "counts and lengths of the header are within what real files hold"},
		{"gguf.text", "names and keys are valid UTF-8"},
		{"gguf.value-type", "values of the header are of known types"},
		{"gguf.duplicate", "no key and no tensor stands in the header twice"},
		{"gguf.alignment", "general.alignment is a multiple of 8"},
		{"gguf.architecture", "the header names the architecture"},
		{"gguf.empty", "the file holds tensors"},
		{"gguf.tensor", "tensors have 1 to 4 dimensions above 0, and whole blocks"},
		{"gguf.tensor-bounds", "every tensor lies inside the file"},
		{"gguf.tensor-alignment", "every tensor begins at a multiple of the alignment"},
		{"gguf.tensor-overlap", "no tensor lies inside another"},
		{"gguf.split-missing", "all files of a checkpoint that was split are there"},
		{"gguf.split-name", "a file of a set has the number in its name that its header gives it"},
	} {
		out = append(out, preflight.Entry{ID: c.id, Subject: "checkpoint", Severity: schemas.SeverityError, Checks: c.checks, Remedy: remedyOf(c.id), When: preflight.Before, Rule: rule})
	}
	return append(out,
		preflight.Entry{ID: "gguf.tensor-type", Subject: "checkpoint", Severity: schemas.SeverityWarning, Checks: "tensors are of known types; the size of others cannot be checked", When: preflight.Before, Rule: rule},
		preflight.Entry{ID: "gguf.header", Subject: "checkpoint", Severity: schemas.SeverityUnknown, Checks: "the header is in order as a whole; unknown where the file cannot be read",
			Remedy: "check the file system it lies on", When: preflight.Before, Rule: rule})
}
