package archive

import (
	"bytes"
	"maps"
	"slices"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Layout reads the runs of an OCI image layout: the store itself, another
// folder, or a tar. It never writes.
type Layout struct {
	src  source
	name string // for messages

	mu     sync.Mutex
	parsed parsedIndex
}

// parsedIndex is the index that was read last. Commands look at it several times,
// and that of a thousand runs takes longer to parse than all else they do.
type parsedIndex struct {
	bytes []byte
	index v1.IndexManifest
}

// parse is parseIndex for bytes that were perhaps just parsed. The caller may
// change what it gets.
func (l *Layout) parse(b []byte) (v1.IndexManifest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parsed.bytes == nil || !bytes.Equal(b, l.parsed.bytes) {
		x, err := parseIndex(b)
		if err != nil {
			return x, err
		}
		l.parsed = parsedIndex{b, x}
	}
	x := l.parsed.index
	x.Manifests = slices.Clone(x.Manifests)
	for i, d := range x.Manifests {
		x.Manifests[i].Annotations = maps.Clone(d.Annotations)
	}
	return x, nil
}

// Name is where the layout lies, as messages name it.
func (l *Layout) Name() string { return l.name }
