package measure

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"assay/internal/durable"
	"assay/internal/observe"
	"assay/internal/report"
	"assay/pipeline"
	"assay/schemas"
)

// SwitchTextFile holds the switch matrix as tables, beside the result. A chart of each
// quantity stands beside it: switch-QUANTITY.svg.
const SwitchTextFile = "switch.txt"

// writeSwitches leaves the matrix of a run in mode switch for people.
func writeSwitches(dir, title string, res schemas.Result) error {
	if res.Switches == nil {
		return nil
	}
	note := ""
	if res.Emulated {
		note = "emulated: latencies are made up"
	}
	files := map[string][]byte{SwitchTextFile: []byte(report.SwitchText(res.Switches))}
	for metric := range res.Switches.All {
		var svg bytes.Buffer
		if err := report.SwitchSVG(&svg, title, metric, note, []report.NamedMatrix{{Name: title, Matrix: res.Switches}}); err != nil {
			return err
		}
		files["switch-"+strings.TrimSuffix(metric, "_ms")+".svg"] = svg.Bytes()
	}
	for name, b := range files {
		if err := durable.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return &pipeline.InfraError{Op: "write " + name, Err: err}
		}
	}
	return nil
}

// maxRuntimeBytes bounds a snapshot.
const maxRuntimeBytes = 64 << 20

// countSwitches holds a matrix against the service's own counters, where it has any:
// fewer switches than visits mean that some found their model in place, and a cache of
// weights that changed means that some may have met weights that were not in it.
func countSwitches(task *pipeline.Task, res *schemas.Result) {
	if res.Switches == nil {
		return
	}
	before, okBefore := runtimeAt(task, observe.SnapshotBeforeFile)
	after, okAfter := runtimeAt(task, observe.SnapshotAfterFile)
	if !okBefore || !okAfter {
		return
	}
	warn := func(id, remedy, format string, args ...any) {
		res.Findings = append(res.Findings, schemas.Finding{ID: id, Severity: schemas.SeverityWarning, Subject: "stage " + task.Node.ID, Message: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	from, told := before.SwitchCount()
	to, toldAfter := after.SwitchCount()
	if told && toldAfter && to >= from {
		counted, visits := to-from, 0
		for _, c := range res.Switches.Cells {
			visits += c.Visits
		}
		res.Switches.Counted = &counted
		if counted < float64(visits) {
			warn("switch.not-counted", "measure with one engine that decodes on each node, or take these for what they are: requests that another engine had the model for",
				"%d visits followed another model, and the service counts %s switches: some found their model in place", visits, schemas.Decimal(counted))
		}
	}
	for _, c := range []struct {
		what     string
		from, to *float64
	}{{"evictions", before.Evictions, after.Evictions}, {"deployments", before.Deployed, after.Deployed}} {
		if c.from != nil && c.to != nil && *c.to > *c.from {
			warn("switch.cache-changed", "let nobody deploy meanwhile, and give the cache of weights room for all models",
				"the service counts %s %s while switches were measured: some may have met weights that were not in host memory, and cannot be told apart", schemas.Decimal(*c.to-*c.from), c.what)
		}
	}
}

// runtimeAt reads a snapshot that was taken of the service.
func runtimeAt(task *pipeline.Task, file string) (observe.Runtime, bool) {
	f, err := os.Open(filepath.Join(task.Dir, "outputs", OutputObserved, file))
	if err != nil {
		return observe.Runtime{}, false // the service has none
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRuntimeBytes))
	if err != nil {
		return observe.Runtime{}, false
	}
	s, err := observe.ParseRuntime(b)
	return s, err == nil
}
