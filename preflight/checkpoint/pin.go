package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"assay/schemas"
)

// CheckFile looks at a safetensors file that is a checkpoint alone.
func CheckFile(ctx context.Context, subject, path string) Result {
	f := &folder{findings: newFindings(subject), src: Source{FS: os.DirFS(filepath.Dir(path))}, files: map[string]file{}}
	name := filepath.Base(path)
	info, err := fs.Stat(f.src.FS, name)
	if err != nil {
		f.failed(name, err)
		return Result{Findings: f.list}
	}
	f.files[name] = file{size: info.Size(), modified: info.ModTime()}
	f.contents()
	shards := f.readHeaders(ctx, []string{name})
	f.sum(shards)
	f.owners(shards)
	if !f.refuses() {
		f.list = append(f.list, one(subject, schemas.SeverityPass, idWhole, f.facts.String()))
	}
	return Result{Findings: f.list, Facts: f.facts}
}

// Pinned holds the fingerprint that an experiment pins against what was computed,
// by whoever computes those that enter keys, so that the two never differ.
func Pinned(subject, level string, pinned, got schemas.Digest, err error) schemas.Finding {
	switch {
	case err != nil:
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err // the path is this machine's
		}
		return one(subject, schemas.SeverityUnknown, idFingerprint, fmt.Sprintf("the fingerprint at level %s cannot be computed: %v", level, err))
	case got != pinned:
		return one(subject, schemas.SeverityError, idFingerprint, fmt.Sprintf("the fingerprint at level %s is %s, the experiment pins %s", level, got, pinned))
	}
	return one(subject, schemas.SeverityPass, idFingerprint, fmt.Sprintf("the fingerprint at level %s is the pinned one", level))
}

// unit is that of the params of an engine's configuration.
const unit = 1 << 30

// Params judges a declared number of parameters, in units of 2^30, by the headers. A
// twentieth is taken for rounding, or for tensors that only some count.
func Params(subject string, declared float64, f Facts) schemas.Finding {
	if f.Parameters == 0 {
		return one(subject, schemas.SeverityUnknown, idParams, "the number of parameters cannot be told from the checkpoint")
	}
	have := float64(f.Parameters) / unit
	near := func(want, tolerance float64) bool { return math.Abs(declared/want-1) <= tolerance }
	says := fmt.Sprintf("params is %s, the checkpoint has %d parameters, which is %s in units of 2^30", schemas.Decimal(declared), f.Parameters, schemas.Rounded(have, 4))
	switch {
	case near(have, 0.05):
		return one(subject, schemas.SeverityPass, idParams, says)
	case near(have*unit/1e9, 0.02):
		return one(subject, schemas.SeverityWarning, idParams, says+": it was given in units of 10^9")
	case near(have*unit, 0.1):
		says += ": it was given as a count"
	}
	return one(subject, schemas.SeverityError, idParams, says)
}
