package cli

import (
	"errors"
	"strings"
	"testing"

	"assay/internal/statcache"
	"assay/schemas"
)

// A store on a disk that other hosts share, or that is gone with the next boot, is
// a warning that says what is safe.
func TestDoctorTellsOfSharedDisks(t *testing.T) {
	for _, c := range []struct {
		kind     statcache.Disk
		err      error
		severity schemas.Severity
		says     string
	}{
		{statcache.Local, nil, schemas.SeverityPass, "local"},
		{statcache.Network, nil, schemas.SeverityWarning, "writing from several is not safe"},
		{statcache.Memory, nil, schemas.SeverityWarning, "gone with the next boot"},
		{statcache.Other, nil, schemas.SeverityInfo, "not known to assay"},
		{statcache.Other, errors.New("no such file"), schemas.SeverityUnknown, "no such file"},
	} {
		d := &diagnosis{}
		d.shared(c.kind, "fs", c.err)
		if len(d.list) != 1 || d.list[0].Severity != c.severity || !strings.Contains(d.list[0].Message, c.says) || d.list[0].ID != "doctor.file-system" {
			t.Errorf("%s: %+v", c.kind, d.list)
		}
	}
}
