package measure

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"assay/internal/durable"
	"assay/internal/observe"
	"assay/pipeline"
	"assay/schemas"
)

func TestTheServiceIsObserved(t *testing.T) {
	s := newStage(t, startEngine(t, fast("m0", "m1"), func() {}), synthForm, map[string]any{"observe": map[string]any{"host": "on", "metrics_interval": "100ms"}})
	s.task.Service.PID = os.Getpid()
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	res := s.result(t)
	o := res.Observed
	if o == nil || len(o.Checks) != 3 || o.CPUS == nil {
		t.Fatalf("observed: %+v", o)
	}
	for _, c := range o.Checks {
		if c.Agrees != "true" || c.Service == nil {
			t.Errorf("%+v", c)
		}
	}
	for _, src := range o.Sources {
		for _, file := range src.Files {
			if _, err := os.Stat(s.path(OutputObserved, file)); err != nil {
				t.Error(err)
			}
		}
		if want := map[string]string{"metrics": "observed", "host": "observed"}[src.Name]; want != "" && src.Status != want {
			t.Errorf("%+v", src)
		}
	}
	b, err := os.ReadFile(s.path(OutputObserved, observe.SummaryFile))
	var again schemas.Observed
	if err != nil || json.Unmarshal(b, &again) != nil || len(again.Series) != len(o.Series) {
		t.Errorf("summary: %v", err)
	}
}

func TestALyingServiceIsFoundOut(t *testing.T) {
	config := fast("m0", "m1")
	config["fault"] = map[string]any{"kind": "lie_usage"}
	s := newStage(t, startEngine(t, config, func() {}), synthForm, map[string]any{"ignore_eos": false})
	if err := run(context.Background(), s.task); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range s.result(t).Findings {
		if f.ID == "server.counts-disagree" {
			found++
		}
	}
	if found != 2 { // prompt and output tokens
		t.Errorf("%d findings, want 2: %+v", found, s.findings)
	}
}

func TestWhatTheStageRequiresOfTheService(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	for _, c := range []struct {
		observe map[string]any
		want    string
	}{
		{map[string]any{"require": []any{"snapshot"}}, "requires snapshot"},
		{map[string]any{"profile": true}, "/start_profile: status 404"},
		{map[string]any{"reset": []any{map[string]any{"path": "/flush_cache"}}}, "POST /flush_cache: want status 200"},
	} {
		s := newStage(t, e, synthForm, map[string]any{"observe": c.observe})
		err := run(context.Background(), s.task)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.observe, err)
		}
		if err != nil && strings.Contains(err.Error(), e.view.URL[len("http://"):]) {
			t.Errorf("the error names the address: %v", err)
		}
		if _, err := os.Stat(s.path(OutputSchedule, ScheduleFile)); err != nil {
			t.Error("the schedule is not kept")
		}
	}
}

func TestObservationsThatCannotBeWritten(t *testing.T) {
	e := startEngine(t, fast("m0", "m1"), func() {})
	for _, c := range []struct {
		op   durable.Op
		file string
	}{{durable.OpCreate, observe.MetricsFile}, {durable.OpWrite, observe.MetricsFile}, {durable.OpFsync, observe.HostFile}, {durable.OpRename, observe.MetricsLastFile}, {durable.OpRename, observe.SummaryFile}} {
		s := newStage(t, e, synthForm, map[string]any{"observe": map[string]any{"host": "on"}})
		full := errors.New("no space left")
		durable.SetHook(func(op durable.Op, path string) error {
			if op == c.op && filepath.Base(path) == c.file {
				return full
			}
			return nil
		})
		err := run(context.Background(), s.task)
		durable.SetHook(nil)
		var infra *pipeline.InfraError
		if !errors.As(err, &infra) || !errors.Is(err, full) {
			t.Errorf("%s of %s fails: error %v, want an infrastructure error", c.op, c.file, err)
		}
	}
}

func TestAProfileIsACondition(t *testing.T) {
	s := newStage(t, startEngine(t, fast("m0", "m1"), func() {}), synthForm, map[string]any{"observe": map[string]any{"profile": true}})
	var c conditionList
	serviceConditions(&c, s.task)
	for _, x := range c.list {
		if x.Name == "profiling" && !strings.Contains(x.Value.(string), "diagnostic") {
			t.Errorf("%+v", x)
		}
	}
	if len(c.list) == 0 {
		t.Error("no conditions")
	}
}
