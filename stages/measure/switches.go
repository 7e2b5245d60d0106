package measure

import (
	"bytes"
	"path/filepath"
	"strings"

	"assay/internal/durable"
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
