package engines

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// List asks a running service which models it has, sorted by name, and whether it
// is an emulated one. base is its URL without /v1; headers, in canonical form, go
// with the question.
func List(ctx context.Context, base string, headers http.Header) (names []string, emulated bool, err error) {
	p := newProber(strings.TrimRight(base, "/"))
	p.headers = headers
	names, emulated, err = p.models(ctx)
	if err != nil {
		return nil, emulated, fmt.Errorf("list models: %w", err)
	}
	return names, emulated, nil
}
