package source

import (
	"assay/preflight"
	"assay/schemas"
)

const (
	ruleProof  = "a validated run is believed for what its files show, not for what it says of itself"
	ruleSame   = "graphs replay only in the layout, the shapes and the environment that they were saved in"
	ruleInside = "a source run is one folder, and leads nowhere else"
)

const (
	remedyAgain = "make the validated run again, or name another one"
	remedyCopy  = "copy or extract the validated run again from where it is whole"
)

// Catalog lists the checks of this package.
func Catalog() []preflight.Entry {
	e := func(id string, severity schemas.Severity, checks, remedy, rule string, pitfalls ...int) preflight.Entry {
		return preflight.Entry{ID: id, Subject: "source", Severity: severity, Checks: checks, Remedy: remedy, When: preflight.Before, Rule: rule, Pitfalls: pitfalls}
	}
	bad := schemas.SeverityError
	return []preflight.Entry{
		e("source.report-missing", bad, "the folder of a validated run has a report.json", "name the folder that holds report.json and multi-model-load.yaml", ruleProof),
		e("source.report-unreadable", bad, "report.json is JSON, of bounded size and depth, with every key once", remedyCopy, ruleProof),
		e("source.report-field", bad, "every required field of report.json is there and of its type", remedyAgain, ruleProof),
		e("source.report-passed", bad, "the report says that the run passed", remedyAgain, ruleProof),
		e("source.report-checks", bad, "the report lists checks, and every one of them held", remedyAgain, ruleProof),
		e("source.models", bad, "every model was captured for each batch size, replayed, and gave equal token ids", remedyAgain, ruleProof, 50),
		e("source.switches", bad, "every model was switched to, away from and back, and answered properly", remedyAgain, ruleProof),
		e("source.config-missing", bad, "the configuration that the report names is in the folder", remedyCopy, ruleProof),
		e("source.config-hash", bad, "the configuration hashes to what the report says", "use the configuration that was validated; a changed one needs a validation of its own", ruleProof),
		e("source.config-yaml", bad, "the configuration is one that Aegaeon takes", remedyAgain, ruleProof, 32, 49, 54),
		e("source.config-mode", bad, "the configuration loads graphs, with prefill and decode engines", remedyAgain, ruleProof, 52),
		e("source.config-models", bad, "the configuration has exactly the models of the report", "load no model without an archive, and leave none out", ruleProof, 50),
		e("source.config-graph", bad, "shapes and memory layout of the configuration are those of the report", remedyAgain, ruleSame, 51),
		e("source.config-archive", bad, "archive_dir of the configuration is the archive root of the report", "name the run's own folder of archives in it", ruleInside, 53),
		e("source.archive-root", bad, "the archive root is a folder with files inside the run", remedyCopy, ruleInside, 53),
		e("source.archive-pair", bad, "every graph is there as .json and as .cugraph, and no file of archives is empty", remedyCopy, ruleProof, 55),
		e("source.file-path", bad, "paths of the inventory are clean and stay inside the run", remedyAgain, ruleInside),
		e("source.file-kind", bad, "the run holds files and folders only: no symbolic link leads out of it", "replace the link by what it stands for, and validate that", ruleInside),
		e("source.file-missing", bad, "every file of the inventory is there", remedyCopy, ruleProof, 50),
		e("source.file-extra", bad, "no file is there that the inventory does not list", "remove it, or validate the run with it", ruleProof),
		e("source.file-changed", bad, "every file has the size and the SHA-256 of the inventory", remedyCopy, ruleProof, 55),
		e("source.inventory", bad, "inventory.sha256, where there is one, is what the report lists", remedyCopy, ruleProof),
		e("source.unreadable", schemas.SeverityUnknown, "the folder can be read", "give this user the right to read it", ruleProof),
		e("source.model-absent", bad, "the source run has every model that the experiment asks for", "validate a run with that model too, or leave it out", ruleSame, 50),
		e("source.shape", bad, "sequences of the experiment fit the bucket of the graphs", "ask for shorter prompts or outputs, or validate with a longer bucket", ruleSame, 52),
		e("source.batch", schemas.SeverityWarning, "batches of the experiment are sizes that graphs were captured for", "capture the sizes that the load makes", ruleSame, 52),
		e("source.environment", bad, "software and device are those that the graphs were saved with", "use the environment of the source run, or validate anew in this one", ruleSame, 51),
		e("source.weights", bad, "checkpoints are those that the graphs were saved with", "use the checkpoints of the source run, or validate anew with these", ruleSame, 51),
		e("source.memory", bad, "the memory layout leaves room on this device", "use a device with as much memory", ruleSame, 22),
	}
}

func remedyOf(id string) string {
	for _, e := range Catalog() {
		if e.ID == id {
			return e.Remedy
		}
	}
	return ""
}
