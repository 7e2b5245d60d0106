package host

import (
	"encoding/json"
	"fmt"

	"assay/schemas"
)

// Decode reads recorded facts.
func Decode(file string, content []byte) (schemas.HostFacts, error) {
	var f schemas.HostFacts
	if len(content) > maxText*8 {
		return f, fmt.Errorf("%s: more than %d bytes: these are no facts of a host", file, maxText*8)
	}
	if err := schemas.Validate("host-facts", content); err != nil {
		return f, fmt.Errorf("%s: %w; record them anew with `assay doctor --facts`", file, err)
	}
	if err := json.Unmarshal(content, &f); err != nil {
		return f, fmt.Errorf("%s: %w", file, err)
	}
	return f, nil
}

// ReadFile reads a file of recorded facts.
func ReadFile(path string) (schemas.HostFacts, error) {
	b, err := readBounded(path, maxText*8+1)
	if err != nil {
		return schemas.HostFacts{}, err
	}
	return Decode(path, b)
}
