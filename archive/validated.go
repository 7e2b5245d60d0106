package archive

import (
	"path"

	"assay/schemas"
)

// shortcuts are symbolic links at the top of an extracted run that holds a validated
// run, for tools that look there: its configuration and its archives. By name of the
// link, their targets.
func shortcuts(report *schemas.Report, entries []schemas.TreeEntry) map[string]string {
	if report == nil || report.ArchiveRoot == "" {
		return nil
	}
	known := map[string]bool{}
	for _, e := range entries {
		known[e.Path] = true
	}
	out := map[string]string{}
	link := func(target string) {
		if name := path.Base(target); known[target] && !known[name] && !reservedTop(name) {
			out[name] = target
		}
	}
	link(report.ArchiveRoot)
	for dir := path.Dir(report.ArchiveRoot); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if p := path.Join(dir, schemas.ValidatedConfig); known[p] {
			link(p)
			break
		}
	}
	return out
}
