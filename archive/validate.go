package archive

import (
	"strings"

	"assay/schemas"
)

// validateDoc checks a document against its published schema; name is the one
// that stands in the document ("assay/report/v1").
func validateDoc(name string, doc []byte) error {
	return schemas.Validate(strings.TrimSuffix(strings.TrimPrefix(name, "assay/"), "/v1"), doc)
}
