package disk

import (
	"assay/preflight"
	"assay/schemas"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	return []preflight.Entry{{ID: "disk.room", Subject: "disk", Severity: schemas.SeverityError, Checks: "the store's file system has the room that the stage asks for; unknown where it does not tell",
		Remedy: "make room, name another store, or lower disk", When: preflight.Before, Rule: "a run that is measured can be archived"}}
}
