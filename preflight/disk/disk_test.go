package disk

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"assay/schemas"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	var asked string
	free := func(n int64, err error) Free {
		return func(path string) (int64, error) { asked = path; return n, err }
	}
	for _, c := range []struct {
		have int64
		err  error
		want schemas.Severity
	}{
		{100, nil, schemas.SeverityPass}, {99, nil, schemas.SeverityError}, {0, errors.New("stale handle"), schemas.SeverityUnknown},
	} {
		f := Check("store", filepath.Join(dir, "not", "yet"), 100, free(c.have, c.err))
		if f.ID != "disk.room" || f.Severity != c.want {
			t.Errorf("%d free, %v: %+v, want %s", c.have, c.err, f, c.want)
		}
		if asked != dir {
			t.Errorf("asked about %s, want the nearest folder that is there, %s", asked, dir)
		}
		if c.err != nil && !strings.Contains(f.Message, c.err.Error()) {
			t.Errorf("the cause is missing: %q", f.Message)
		}
	}
}

func TestStatfs(t *testing.T) {
	n, err := Statfs(t.TempDir())
	if err != nil || n < 0 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := Statfs(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a missing folder has no room")
	}
}
