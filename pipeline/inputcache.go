package pipeline

import (
	"path/filepath"
	"time"

	"assay/internal/statcache"
	"assay/schemas"
)

// cachedInputBytes is from what size on the digest of an input is remembered:
// models and data sets. Smaller files are read in no time.
const cachedInputBytes = 1 << 20

// inputCache gives the digests of large inputs that stat shows to be unchanged
// since they were last read. Only the first look at an input uses it: whether an
// input changed under a stage is always found out by reading it again.
type inputCache struct {
	files *statcache.Files
	write bool
}

// newInputCache is nil, which remembers nothing, when everything is to be read.
func newInputCache(o Options, write bool) *inputCache {
	if o.Rehash || o.StoreDir == "" {
		return nil
	}
	files := statcache.NewFiles(filepath.Join(o.StoreDir, "assay", "cache", "inputs"))
	if files.Load() != nil {
		return nil // a cache that cannot be read saves nothing
	}
	return &inputCache{files, write}
}

func (c *inputCache) lookup(s statcache.Stamp) (schemas.Digest, bool) {
	if c == nil || s.Size < cachedInputBytes {
		return "", false
	}
	sum, ok := c.files.Lookup(s)
	return schemas.DigestFromSum(sum[:]), ok
}

// remember keeps what was read, for this run and later ones. That it cannot be
// written costs the next run a reading.
func (c *inputCache) remember(before, after statcache.Stamp, began time.Time, sum statcache.Sum, path string) {
	if c == nil || !c.write || before.Size < cachedInputBytes {
		return
	}
	c.files.Remember(before, after, began, sum, path)
	_ = c.files.Save()
}
