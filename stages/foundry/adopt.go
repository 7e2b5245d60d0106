package foundry

import (
	"context"

	"assay/pipeline"
	"assay/schemas"
)

// AdoptKind returns the kind adopt.
func AdoptKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "adopt", Version: 1,
		Outputs: func(map[string]any) []string { return []string{schemas.ValidatedOutput} },
		Run:     runAdopt,
	}
}

func runAdopt(_ context.Context, task *pipeline.Task) error {
	dir, err := task.OutputDir(schemas.ValidatedOutput)
	if err != nil {
		return err
	}
	return copyFolder(schemas.Settings(task.Config).Text("folder"), dir)
}
