package redact

import "testing"

// A record's finish reason and error are looked through while the load runs.
func BenchmarkString(b *testing.B) {
	s := New(map[string]string{"sk-live-4f9a7c2e81d0b356": "[x]"})
	for b.Loop() {
		_ = s.String("length")
		_ = s.String("")
	}
}
