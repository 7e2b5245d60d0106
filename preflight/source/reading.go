package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

func (c *checker) hash(name, want string) {
	f, err := c.fsys.Open(name)
	if err != nil {
		c.cannot(name, err)
		return
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, &ctxReader{c.ctx, f}); err != nil {
		c.cannot(name, err)
		return
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		c.fail("source.file-changed", name, "it hashes to %s, the inventory says %s", got, want)
	}
}

func (c *checker) read(name string, limit int64) ([]byte, error) {
	if info, err := fs.Lstat(c.fsys, name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := c.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return b, err
}

// ctxReader stops a long read when its context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
