package archive

import (
	"runtime/debug"
	"testing"
)

// The limit holds while anybody holds a large tree, and no longer; one that is
// lower, or was set by somebody else meanwhile, is left alone.
func TestMemoryBound(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	want := func(limit int64, when string) {
		t.Helper()
		if got := debug.SetMemoryLimit(-1); got != limit {
			t.Errorf("%s: the limit is %d, want %d", when, got, limit)
		}
	}
	boundMemory(false)()
	want(before, "small")
	one, two := boundMemory(true), boundMemory(true)
	want(treeMemoryBytes, "two held")
	one()
	one()
	want(treeMemoryBytes, "one let go, twice")
	two()
	want(before, "none held")

	debug.SetMemoryLimit(1 << 20)
	one = boundMemory(true)
	want(1<<20, "a lower one")
	one()
	want(1<<20, "a lower one, let go")

	debug.SetMemoryLimit(before)
	one = boundMemory(true)
	debug.SetMemoryLimit(300 << 20)
	one()
	want(300<<20, "set by somebody else")
}
