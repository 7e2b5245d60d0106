package archive_test

import (
	"assay/archive"
	"assay/pipeline"
)

// The store is what execution needs, without either package knowing the other.
var _ pipeline.Store = (*archive.Store)(nil)
