package remote

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"assay/archive"
	"assay/schemas"
)

// A registry that says that it has a blob may have kept it badly, and most do not
// look at what they have when the blob is sent again. So what a push relies on is
// looked at: the length that HEAD tells always, every byte when asked to.

const maxDamaged = 5 // that an error names

// readBack reads a blob from the registry: a *archive.CorruptError when it is not
// what its digest promises.
func (c *client) readBack(ctx context.Context, b archive.BlobRef, moved func(int64)) error {
	d := &download{c: c, blob: b, quiet: true}
	defer d.close()
	size, err := d.begin(ctx)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(h, io.TeeReader(io.LimitReader(d.reader(ctx), b.Size+1), tell(moved)))
	if err != nil {
		return err
	}
	if got := schemas.DigestFromSum(h.Sum(nil)); size != b.Size || n != b.Size || got != b.Digest {
		return &archive.CorruptError{Blob: b.Digest, Err: fmt.Errorf("registry %s keeps %d bytes for it, want %d, that hash to %s, and does not replace them when they are sent again: whoever runs it must delete the blob, then push again",
			c.repo.RegistryStr(), size, b.Size, got)}
	}
	return nil
}

type tell func(int64)

func (t tell) Write(b []byte) (int, error) {
	t(int64(len(b)))
	return len(b), nil
}

// check reads the blob back. One that was there before and is damaged is sent, in
// case the registry takes it, and read once more.
func (u *upload) check(ctx context.Context, what fate) (fate, error) {
	var counted int64
	count := func(n int64) {
		counted += n
		u.c.progress.add(n, 0)
	}
	err := u.c.readBack(ctx, u.blob, count)
	if corrupt(err) && what != sent {
		if err = u.transfer(ctx, ""); err == nil {
			u.c.progress.add(-counted, 0)
			counted = 0
			err = u.c.readBack(ctx, u.blob, count)
			what = sent
		}
	}
	u.c.progress.add(u.blob.Size-counted, 0)
	return what, err
}

// damage gathers what is wrong with several blobs.
type damage struct {
	first []error
	n     int
}

func (d *damage) add(err error) {
	if d.n++; d.n <= maxDamaged {
		d.first = append(d.first, err)
	}
}

func (d *damage) err() error {
	if d.n > maxDamaged {
		return errors.Join(append(d.first, fmt.Errorf("and %d more blobs", d.n-maxDamaged))...)
	}
	return errors.Join(d.first...)
}
