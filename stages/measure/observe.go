package measure

import (
	"context"
	"errors"
	"fmt"
	"io"

	"assay/internal/observe"
	"assay/pipeline"
	"assay/schemas"
)

// observation is what is seen of the service while it is measured.
type observation struct {
	task     *pipeline.Task
	recorder *observe.Recorder
	seen     schemas.Observed
	findings []schemas.Finding
	err      error
}

// startObserving makes the looks before the first request. An error is one that the
// stage cannot do without.
func startObserving(ctx context.Context, task *pipeline.Task, set schemas.Settings) (*observation, error) {
	dir, err := task.OutputDir(OutputObserved)
	if err != nil {
		return nil, err
	}
	opts := observe.Options{
		Config: observe.ConfigOf(set.Table("observe")), URL: task.Service.URL, Key: task.Service.Asking.Key, Engine: task.Service.Engine, PID: task.Service.PID,
		Dir: dir, Hide: task.Hide, Env: task.Env, Subject: "stage " + task.Node.ID,
	}
	if task.Supervise != nil {
		opts.Run = func(ctx context.Context, argv, env []string, stdout, stderr io.Writer) (int, error) {
			return task.Supervise.Run(ctx, pipeline.Command{Argv: argv, Dir: task.Work, Env: env, Stdout: stdout, Stderr: stderr})
		}
	}
	rec, err := observe.Start(ctx, opts)
	if err != nil {
		return nil, infraIfWriting(err)
	}
	return &observation{task: task, recorder: rec}, nil
}

// end makes the looks after the last answer.
func (o *observation) end(ctx context.Context) {
	o.seen, o.findings, o.err = o.recorder.End(ctx)
}

// into adds what was seen to the result, and writes its summary.
func (o *observation) into(res *schemas.Result) error {
	var write *observe.WriteError
	if errors.As(o.err, &write) {
		return infraIfWriting(o.err)
	}
	o.findings = append(o.findings, observe.Check(&o.seen, res.Counts, "stage "+o.task.Node.ID)...)
	res.Findings = append(res.Findings, o.findings...)
	res.Observed = &o.seen
	if o.seen.CPUCores != nil {
		fmt.Fprintf(o.task.Log, "observing took %.4f processors\n", *o.seen.CPUCores)
	}
	return infraIfWriting(o.recorder.Write(o.seen))
}

func infraIfWriting(err error) error {
	var write *observe.WriteError
	if errors.As(err, &write) {
		return &pipeline.InfraError{Op: "write observations", Err: write.Err}
	}
	return err
}
