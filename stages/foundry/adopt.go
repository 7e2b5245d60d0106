package foundry

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"assay/pipeline"
	"assay/preflight"
	"assay/preflight/foundry"
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
	findings := result.Findings
	if result.OK() {
		found, err := checkArchives(ctx, filepath.Join(dir, filepath.FromSlash(result.Report.ArchiveRoot)), result.Report)
		if err != nil {
			return err
		}
		findings = append(findings, found...)
	}
	for _, f := range findings {
		task.Report(f)
	}
	if refused := preflight.Refuses(findings); len(refused) > 0 {
		return errors.New(refused[0].Message + ": " + refused[0].Remedy)
	}
	return nil
}

func checkArchives(ctx context.Context, dir string, report schemas.Validated) ([]schemas.Finding, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &pipeline.InfraError{Op: "read the archives of the copy", Err: err}
	}
	defer root.Close()
	return foundry.Check(ctx, "archives as copied", root.FS(), foundry.OfReport(report, 0)), ctx.Err()
}
