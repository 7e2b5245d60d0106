package loadgen

import (
	"fmt"
	"strconv"
	"strings"
)

// count is a number of tokens as a service wrote it, whatever that was; null is
// none.
type count struct{ raw string }

// UnmarshalJSON keeps the value, so that a wrong one can be told.
func (c *count) UnmarshalJSON(b []byte) error {
	c.raw = string(b)
	return nil
}

// whole is the number, nil for null. 12.0 and 1.2e1 are twelve; JSON knows no other
// difference between them.
func (c *count) whole() (*int, error) {
	if c == nil || c.raw == "null" {
		return nil, nil
	}
	if n, err := strconv.Atoi(c.raw); err == nil && n >= 0 && n <= maxTokens {
		return &n, nil
	}
	f, err := strconv.ParseFloat(c.raw, 64)
	if n := int(f); err == nil && f >= 0 && f <= maxTokens && float64(n) == f {
		return &n, nil
	}
	said := strings.ToValidUTF8(c.raw[:min(len(c.raw), 60)], "")
	if len(c.raw) > len(said) {
		said += "..."
	}
	return nil, fmt.Errorf("%s: want a whole number from 0 to %d", said, maxTokens)
}

// toldUsage is usage as a service wrote it.
type toldUsage struct {
	PromptTokens     *count `json:"prompt_tokens"`
	CompletionTokens *count `json:"completion_tokens"`
}

func (t *toldUsage) read() (*usage, error) {
	prompt, err := t.PromptTokens.whole()
	if err != nil {
		return nil, fmt.Errorf("usage.prompt_tokens is %w", err)
	}
	completion, err := t.CompletionTokens.whole()
	if err != nil {
		return nil, fmt.Errorf("usage.completion_tokens is %w", err)
	}
	return &usage{PromptTokens: prompt, CompletionTokens: completion}, nil
}
