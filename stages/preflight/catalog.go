package preflight

import (
	"cmp"
	"slices"

	"assay/preflight"
	"assay/preflight/aegaeon"
	"assay/preflight/checkpoint"
	"assay/preflight/disk"
	"assay/preflight/foundry"
	"assay/preflight/gguf"
	"assay/preflight/host"
	"assay/preflight/paths"
	"assay/preflight/ports"
	"assay/preflight/pypto"
	"assay/preflight/secrets"
	"assay/preflight/service"
	"assay/preflight/source"
	"assay/preflight/workload"
	"assay/schemas"
)

// catalogs lists what every package of checks says of itself: a new one is
// appended here, and nowhere else.
func catalogs() []func() []preflight.Entry {
	return []func() []preflight.Entry{
		own,
		paths.Catalog,
		ports.Catalog,
		disk.Catalog,
		checkpoint.Catalog,
		gguf.Catalog,
		foundry.Catalog,
		secrets.Catalog,
		source.Catalog,
		workload.Catalog,
		aegaeon.Catalog,
		pypto.Catalog,
		service.Catalog,
		host.Catalog,
	}
}

// Catalog lists every check that there is, by subject and ID.
func Catalog() []preflight.Entry {
	var out []preflight.Entry
	for _, list := range catalogs() {
		out = append(out, list()...)
	}
	slices.SortStableFunc(out, func(a, b preflight.Entry) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// own lists what is found while the subjects of the checks are looked for: in the
// experiment, by this kind and by the pipeline, and of a source run.
func own() []preflight.Entry {
	const (
		named   = "every reference of an experiment can be followed"
		earlier = "an earlier run is used only when it is whole and passed"
	)
	return []preflight.Entry{
		{ID: "reference.unresolved", Subject: "experiment", Severity: schemas.SeverityError, Checks: "what the experiment refers to is defined", Remedy: "define what it refers to", When: preflight.Before, Rule: named},
		{ID: "reference.deferred", Subject: "experiment", Severity: schemas.SeverityDeferred, Checks: "what an earlier stage makes is checked by the stage that uses it", When: preflight.Before, Rule: named},
		{ID: "plan.cost", Subject: "experiment", Severity: schemas.SeverityInfo, Checks: "says what the run will send and take, as far as keys and files tell", When: preflight.Before, Rule: "what an hour is spent on is known before"},
		{ID: "preflight.stage", Subject: "experiment", Severity: schemas.SeverityError, Checks: "a stage that runs before everything ends properly", Remedy: "look at its message", When: preflight.Before,
			Rule: "nothing is measured after a check that did not end"},
		{ID: "source.missing", Subject: "source", Severity: schemas.SeverityError, Checks: "a source run is named where the experiment reads one, and can be found", Remedy: "name the run with --source-run REF", When: preflight.Before, Rule: earlier},
		{ID: "source.invalid", Subject: "source", Severity: schemas.SeverityError, Checks: "the source run is valid", Remedy: "`assay verify` says more; use an intact copy", When: preflight.Before, Rule: earlier},
		{ID: "source.status", Subject: "source", Severity: schemas.SeverityError, Checks: "the source run passed", Remedy: "name a run that passed", When: preflight.Before, Rule: earlier},
		{ID: "source.lineage", Subject: "source", Severity: schemas.SeverityError, Checks: "the runs that the source run was made from are valid, as far as the store has them", Remedy: "pull or copy that run into the store", When: preflight.Before, Rule: earlier},
		{ID: "source.path", Subject: "source", Severity: schemas.SeverityError, Checks: "the source run holds what the experiment reads of it", Remedy: "`assay show REF --files` lists its paths", When: preflight.Before, Rule: earlier},
	}
}
