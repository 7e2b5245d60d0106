package archive

import (
	"runtime/debug"
	"sync"

	"assay/schemas"
)

const (
	// A tree of a million files is about 230 MB in memory, and a collector that
	// waits until the heap has doubled would let the process have twice that. While
	// one is held it is asked to come earlier; it is a request, not a limit.
	treeMemoryBytes = 400 << 20
	manyEntries     = 100_000
	longTreeDoc     = manyEntries * 250 // bytes of a document of so many
)

var memoryBound struct {
	mu     sync.Mutex
	held   int
	before int64
}

// boundMemory lets the garbage collector keep the process near treeMemoryBytes
// until release is called. A limit that is lower already stays.
func boundMemory(large bool) (release func()) {
	if !large {
		return func() {}
	}
	m := &memoryBound
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held++; m.held == 1 {
		m.before = debug.SetMemoryLimit(-1)
		debug.SetMemoryLimit(min(m.before, treeMemoryBytes))
	}
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		// Whoever has set another limit meanwhile keeps it.
		if m.held--; m.held == 0 && debug.SetMemoryLimit(-1) == treeMemoryBytes {
			debug.SetMemoryLimit(m.before)
		}
	})
}

// largeMounts says whether the trees of a run have many entries together.
func (s *Store) largeMounts(mounts []mount) bool {
	sum := int64(0)
	seen := map[schemas.Digest]bool{}
	for _, m := range mounts {
		if n, err := s.blobSize(m.tree); err == nil && !seen[m.tree] {
			seen[m.tree] = true
			sum += n
		}
	}
	return sum > longTreeDoc
}
