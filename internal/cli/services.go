package cli

import (
	"context"
	"errors"
	"time"

	"assay/internal/engines"
	"assay/pipeline"
	"assay/schemas"
)

// How a lifetime ended, in the words of schemas.ServiceRecord.
const (
	endStopped  = "stopped"
	endDied     = "died"
	endKilled   = "killed"
	endDetached = "detached"
)

// startService starts or attaches to a service for the pipeline.
func startService(ctx context.Context, l pipeline.ServiceLaunch) (pipeline.Service, error) {
	env := make([]string, 0, len(l.Env))
	for k, v := range l.Env {
		env = append(env, k+"="+v)
	}
	begun := time.Now()
	i, err := engines.Start(ctx, engines.Launch{Service: l.Service, Unit: l.Unit, Engine: l.Engine, Config: l.Config, Env: env, LogDir: l.LogDir, Token: l.Token, Secrets: l.Secrets,
		WorkDir: l.WorkDir, ModelPaths: l.ModelPaths, SourceArchive: l.SourceArchive})
	if err != nil {
		return nil, err
	}
	return &service{instance: i, launch: l, ready: time.Since(begun)}, nil
}

type service struct {
	instance *engines.Instance
	launch   pipeline.ServiceLaunch
	ready    time.Duration
}

var _ pipeline.Service = (*service)(nil)

// View implements pipeline.Service.
func (s *service) View() pipeline.ServiceView {
	i := s.instance
	view := pipeline.ServiceView{Name: s.launch.Service, Engine: s.launch.Engine, URL: i.URL, Models: i.Listed(), Emulated: i.Emulated, PID: i.Pid(), Dead: i.Dead, Done: i.Done(), Relist: i.Relist}
	view.Log, view.GraphArchive = i.LogFile, i.GraphArchive
	view.Config, _ = s.launch.Config["aegaeon_config"].(string)
	view.Asking = schemas.AskingOf(s.launch.Config)
	if i.Pid() != 0 {
		ready := float64(s.ready) / 1e6
		view.ReadyMs = &ready
	}
	return view
}

// Stop implements pipeline.Service. A service that is gone before it is asked to
// stop has died, whatever its exit code.
func (s *service) Stop(ctx context.Context) pipeline.ServiceEnd {
	dead := s.instance.Dead()
	report := s.instance.Stop(ctx)
	end := pipeline.ServiceEnd{Status: endStopped, Argv: s.argv(), ReadyMs: float64(s.ready) / 1e6, Config: s.instance.Config}
	if !report.Attached {
		end.ExitCode = &report.ExitCode
	}
	switch {
	case report.Attached:
		end.Status = endDetached
	case dead != "":
		end.Status, end.Error = endDied, dead
	case report.Killed:
		end.Status, end.Error = endKilled, "it did not stop within its grace and was killed"
	}
	if report.Err != nil {
		end.Error = errors.Join(errors.New(firstText(end.Error, "stop")), report.Err).Error()
	}
	return end
}

// argv is the command as the experiment gives it; the emulated engine has none.
func (s *service) argv() []string {
	var argv []string
	list, _ := s.launch.Config["command"].([]any)
	for _, a := range list {
		if text, ok := a.(string); ok {
			argv = append(argv, text)
		}
	}
	return argv
}

func firstText(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
