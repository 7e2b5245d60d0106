package foundry

import (
	"context"
	"errors"
	"os"

	"assay/pipeline"
	"assay/preflight"
	"assay/preflight/source"
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

// runAdopt copies the folder and checks the copy: what was checked where it lay may
// have changed since.
func runAdopt(ctx context.Context, task *pipeline.Task) error {
	dir, err := task.OutputDir(schemas.ValidatedOutput)
	if err != nil {
		return err
	}
	if err := copyFolder(schemas.Settings(task.Config).Text("folder"), dir); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return &pipeline.InfraError{Op: "read the copy", Err: err}
	}
	defer root.Close()
	result, err := source.Check(ctx, root.FS(), "as copied")
	if err != nil {
		return err
	}
	for _, f := range result.Findings {
		task.Report(f)
	}
	if refused := preflight.Refuses(result.Findings); len(refused) > 0 {
		return errors.New(refused[0].Message + ": " + refused[0].Remedy)
	}
	return nil
}
