package stages

import (
	"assay/pipeline"
	"assay/stages/command"
	"assay/stages/compare"
	"assay/stages/foundry"
	"assay/stages/load"
	"assay/stages/measure"
	"assay/stages/preflight"
	"assay/stages/report"
	"assay/stages/simulate"
	"assay/stages/warmup"
	"assay/stages/workload"
)

// Kinds returns every stage kind, in the order of schemas.Kinds.
func Kinds() []pipeline.Kind {
	return []pipeline.Kind{
		preflight.Kind(), workload.Kind(), command.Kind(), warmup.Kind(), load.Kind(), foundry.GraphsKind(), foundry.ValidateKind(), foundry.AdoptKind(), measure.Kind(), simulate.Kind(), simulate.SweepKind(), compare.Kind(), report.Kind(),
	}
}
