package checkpoint

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"assay/schemas"
)

// prepackedName is how PyPTO's tool names what it writes beside a checkpoint.
var prepackedName = regexp.MustCompile(`^pypto-.*-stacked-r[0-9]+\.safetensors$`)

// readPrepacked looks at weights that were prepared for an engine beside the
// checkpoint. They are an engine's own copy, and no part of the model.
func (f *folder) readPrepacked() {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if !prepackedName.MatchString(name) || f.files[name].bad {
			continue
		}
		h, err := f.readHeader(name)
		if err != nil {
			f.failed(name, err)
			continue
		}
		print := h.Metadata["source_fingerprint"]
		if print == "" || h.Metadata["format"] == "" {
			f.add(idPrepacked, "%s: its header has no format or no source_fingerprint, so nobody can tell what it was made from", name)
			continue
		}
		newer := ""
		for _, other := range slices.Sorted(maps.Keys(f.files)) {
			part := other == "config.json" || strings.HasSuffix(other, ".safetensors.index.json") || strings.HasSuffix(other, ".safetensors") && !prepackedName.MatchString(other)
			if part && newer == "" && f.files[other].modified.After(f.files[name].modified) {
				newer = other
			}
		}
		if newer != "" {
			f.add(idStale, "%s is older than %s, and is passed over where sizes and times are no longer those it was made from", name, quoted(newer))
			continue
		}
		f.at(schemas.SeverityPass, idPrepacked, "%s: format %s, made from the checkpoint with fingerprint %s", name, quoted(h.Metadata["format"]), quoted(print))
	}
}
