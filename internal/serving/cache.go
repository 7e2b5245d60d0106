package serving

import (
	"cmp"
	"slices"
)

// ModelCache is the host memory of a node that holds weights. A model's weights are
// slices, each of which needs one contiguous place, so that free bytes in pieces
// may not be enough. It is not for concurrent use.
type ModelCache struct {
	bytes int64
	held  []cached // in order of offset
	use   map[int]uint64
	clock uint64
}

type cached struct {
	model         int
	offset, bytes int64
}

// NewModelCache makes a cache of so many bytes.
func NewModelCache(bytes int64) *ModelCache { return &ModelCache{bytes: bytes, use: map[int]uint64{}} }

// Free is the number of bytes that hold nothing.
func (c *ModelCache) Free() int64 {
	free := c.bytes
	for _, h := range c.held {
		free -= h.bytes
	}
	return free
}

// Models lists what is held, the least recently used first: the order in which
// models are evicted.
func (c *ModelCache) Models() []int {
	var out []int
	for m := range c.use {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b int) int { return cmp.Or(cmp.Compare(c.use[a], c.use[b]), cmp.Compare(a, b)) })
	return out
}

// Has says whether a model is held.
func (c *ModelCache) Has(model int) bool { return c.use[model] != 0 }

// Touch notes a use of a model that is held.
func (c *ModelCache) Touch(model int) {
	if c.Has(model) {
		c.clock++
		c.use[model] = c.clock
	}
}

// bytesOf is what a model takes.
func (c *ModelCache) bytesOf(model int) int64 {
	var n int64
	for _, h := range c.held {
		if h.model == model {
			n += h.bytes
		}
	}
	return n
}

// layout finds a place for each slice, first fit; nil when there is none.
func (c *ModelCache) layout(model int, parts []int64) []cached {
	held := slices.Clone(c.held)
	for _, n := range parts {
		at, i := int64(0), 0
		for i < len(held) && held[i].offset-at < n {
			at = held[i].offset + held[i].bytes
			i++
		}
		if i == len(held) && c.bytes-at < n {
			return nil
		}
		held = slices.Insert(held, i, cached{model, at, n})
	}
	return held
}

// Fits says whether the slices fit as things lie, without an eviction.
func (c *ModelCache) Fits(parts []int64) bool { return c.layout(-1, parts) != nil }

// Put holds a model; false when it does not fit.
func (c *ModelCache) Put(model int, parts []int64) bool {
	held := c.layout(model, parts)
	if held == nil || c.Has(model) {
		return false
	}
	c.held = held
	c.clock++
	c.use[model] = c.clock
	return true
}

// Drop forgets a model.
func (c *ModelCache) Drop(model int) {
	c.held = slices.DeleteFunc(c.held, func(h cached) bool { return h.model == model })
	delete(c.use, model)
}

// Evictions plans which models would be evicted, in what order, for the slices to
// fit: the least recently used first, those in use never, on a copy. False when
// even that is not enough.
func (c *ModelCache) Evictions(parts []int64, inUse func(model int) bool) (models []int, bytes int64, ok bool) {
	copied := &ModelCache{bytes: c.bytes, held: slices.Clone(c.held), use: map[int]uint64{}}
	if copied.Fits(parts) {
		return nil, 0, true
	}
	for _, m := range c.Models() {
		if inUse(m) {
			continue
		}
		models, bytes = append(models, m), bytes+c.bytesOf(m)
		copied.Drop(m)
		if copied.Fits(parts) {
			return models, bytes, true
		}
	}
	return nil, 0, false
}
