package cli

import (
	"runtime"
	"runtime/debug"

	"assay/archive"
	"assay/schemas"
)

// Set by the linker in a release; else taken from what the Go tool stamps.
var (
	version  = ""
	revision = ""
)

func toolIdentity() schemas.ToolIdentity {
	id := schemas.ToolIdentity{Version: version, Revision: revision, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return orUnknown(id)
	}
	if id.Version == "" && info.Main.Version != "(devel)" {
		id.Version = info.Main.Version
	}
	dirty := false
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && id.Revision == "":
			id.Revision = s.Value
		case s.Key == "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && revision == "" && id.Revision != "" {
		id.Revision += "-dirty"
	}
	return orUnknown(id)
}

func orUnknown(id schemas.ToolIdentity) schemas.ToolIdentity {
	if id.Version == "" {
		id.Version = "devel"
	}
	if id.Revision == "" {
		id.Revision = "unknown"
	}
	return id
}

type versionDoc struct {
	schemas.ToolIdentity
	OS          string `json:"os"`
	Arch        string `json:"arch"`
	StoreFormat int    `json:"store_format"`
}

func versionCommand() *command {
	return &command{
		name: "version", summary: "print the version of this program",
		example: "assay version --format json",
		run: func(c *call) error {
			doc := versionDoc{toolIdentity(), runtime.GOOS, runtime.GOARCH, archive.FormatVersion}
			if c.asJSON {
				return c.printJSON(doc)
			}
			c.printf("assay %s (%s, %s, %s/%s, store format %d)\n", doc.Version, doc.Revision, doc.Go, doc.OS, doc.Arch, doc.StoreFormat)
			return nil
		},
	}
}
