package fingerprint

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"assay/internal/statcache"
	"assay/schemas"
)

// content hashes a file, unless the cache knows it to be unchanged.
func content(ctx context.Context, path string, cache *statcache.Files) (schemas.Digest, int64, error) {
	f, info, err := open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	began, before := time.Now(), statcache.StampOf(info)
	if cache != nil {
		if sum, ok := cache.Lookup(before); ok {
			return schemas.DigestFromSum(sum[:]), before.Size, nil
		}
	}
	h := sha256.New()
	n, err := io.CopyBuffer(h, &stoppable{ctx, f}, make([]byte, 256<<10))
	if err != nil {
		return "", 0, err
	}
	if info, err = f.Stat(); err != nil {
		return "", 0, err
	}
	sum := statcache.Sum(h.Sum(nil))
	if after := statcache.StampOf(info); after != before || n != before.Size {
		return "", 0, fmt.Errorf("it was written to while it was being read")
	}
	if cache != nil {
		cache.Remember(before, before, began, sum, path)
	}
	return schemas.DigestFromSum(sum[:]), n, nil
}

// stoppable ends a long reading with its context.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
