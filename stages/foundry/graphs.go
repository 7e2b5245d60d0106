package foundry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"assay/internal/durable"
	"assay/internal/loadgen"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs of graphs, and the files in them.
const (
	OutputAnswers = "answers"
	OutputLog     = "log"
	OutputConfig  = "config"
	OutputArchive = "archive"
	AnswersFile   = "answers.json"
	LogFile       = "service.log"
	ConfigFile    = "config.yaml"
)

// GraphsKind returns the kind graphs.
func GraphsKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "graphs", Version: 1, Measured: true,
		Seed: func(map[string]any) pipeline.SeedUse { return pipeline.SeedRepetition },
		Outputs: func(config map[string]any) []string {
			out := []string{OutputAnswers, OutputLog, OutputConfig}
			if mode := config["mode"]; mode == schemas.GraphsSave || mode == nil {
				out = append(out, OutputArchive)
			}
			return out
		},
		Run: runGraphs,
	}
}

func runGraphs(ctx context.Context, task *pipeline.Task) error {
	set := schemas.Settings(task.Config)
	switch view := task.Service; {
	case view == nil:
		return errors.New("graphs needs a service: name one with service = \"...\"")
	case view.Log == "":
		return fmt.Errorf("service %s was attached to: its log, which tells of graphs, cannot be read: let assay start it", view.Name)
	case view.Config == "":
		return fmt.Errorf("service %s has no aegaeon_config: the layout of graphs is not known", view.Name)
	}
	g := schemas.Graphs{Schema: schemas.GraphsV1, Mode: set.Text("mode"), Emulated: task.Service.Emulated, InputTokens: set.Int("input_tokens"), OutputTokens: set.Int("output_tokens"),
		Models: set.List("models"), Answers: []schemas.GraphsAnswer{}}
	if len(g.Models) == 0 {
		g.Models = slices.Clone(task.Service.Models)
	}
	if len(g.Models) == 0 {
		return errors.New("the service lists no models: name some with models")
	}
	err := ask(ctx, task, set, &g)
	if err == nil {
		err = awaitMarkers(ctx, task.Service, set.Duration("marker_timeout"), &g)
	}
	// What was seen is kept, whatever it was.
	return errors.Join(err, keep(task, &g))
}

// visits are the models in the order in which they are asked: each before and after
// every other.
func visits(models []string) []string {
	out := []string{models[0]}
	for i := range models {
		if i > 0 {
			out = append(out, models[i])
		}
		for j := i + 1; j < len(models); j++ {
			out = append(out, models[j], models[i])
		}
	}
	return out
}

// ask sends the requests one by one. A model is always asked the same, so that its
// answers can be compared.
func ask(ctx context.Context, task *pipeline.Task, set schemas.Settings, g *schemas.Graphs) error {
	limit := set.Duration("request_timeout")
	content := workload.SubSeed(task.Seed, "graphs/content")
	asking := task.Service.Asking
	client, err := loadgen.New(loadgen.Options{BaseURL: task.Service.URL, ContentSeed: content, Held: true, MinTokens: asking.MinTokens, Headers: asking.Key.Header(),
		Extra: map[string]any{"return_token_ids": true}, RequestTimeout: limit, IdleTimeout: limit})
	if err != nil {
		return err
	}
	defer client.Close()
	order := visits(g.Models)
	after := ""
	for n, model := range order {
		index := slices.Index(g.Models, model)
		req := loadgen.Request{ScheduledRequest: schemas.ScheduledRequest{Index: index, ID: fmt.Sprintf("graphs-%d", n), Model: model, InputTokens: g.InputTokens, OutputTokens: g.OutputTokens}}
		rec := client.Do(ctx, req)
		a := schemas.GraphsAnswer{Model: model, After: after, PromptDigest: loadgen.PromptDigest(loadgen.APICompletions, content, req), PromptTokens: g.InputTokens,
			Outcome: rec.Outcome, Error: task.Hide(rec.Error), TokenIDs: append([]int{}, rec.TokenIDs...)}
		if rec.InputTokens != nil {
			a.PromptTokens = *rec.InputTokens
		}
		g.Answers = append(g.Answers, a)
		task.Progress(int64(n+1), int64(len(order)), model)
		switch {
		case rec.Outcome != schemas.OutcomeOK:
			return fmt.Errorf("model %s: request %d ended with %s: %s", model, n, rec.Outcome, a.Error)
		case len(rec.TokenIDs) == 0:
			return fmt.Errorf("model %s: request %d: the service returned no token ids, and nothing else can be compared", model, n)
		}
		after = model
	}
	return nil
}

const (
	firstLook = 5 * time.Millisecond
	lastLook  = 500 * time.Millisecond
)

// awaitMarkers reads the log until it tells of graphs as it should in this mode, or
// time is up: what is missing then is for the judgement.
func awaitMarkers(ctx context.Context, view *pipeline.ServiceView, limit time.Duration, g *schemas.Graphs) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		b, err := readLog(view.Log)
		if err != nil {
			return err
		}
		g.Markers = CountMarkers(b, g.Models)
		if markersComplete(*g) {
			return nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-view.Done:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// markersComplete says whether nothing more is to be waited for.
func markersComplete(g schemas.Graphs) bool {
	switch g.Mode {
	case schemas.GraphsSave:
		return seenFor(g, MarkerCaptured, len(g.Models)) && seenFor(g, MarkerReplay, len(g.Models))
	case schemas.GraphsLoad:
		return seenFor(g, MarkerLoaded, len(g.Models)) && seenFor(g, MarkerReplay, len(g.Models))
	}
	return true
}

func seenFor(g schemas.Graphs, marker string, n int) bool { return g.Marker(marker).Lines >= n }

// maxLogBytes is the most of a log that is looked at and kept.
const maxLogBytes = 64 << 20

func readLog(path string) ([]byte, error) {
	f, err := durable.OpenPlain(path)
	if err != nil {
		return nil, fmt.Errorf("log of the service: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxLogBytes))
	if err != nil {
		return nil, fmt.Errorf("log of the service: %w", err)
	}
	return b, nil
}

// keep writes the outputs.
func keep(task *pipeline.Task, g *schemas.Graphs) error {
	log, err := readLog(task.Service.Log)
	if err != nil {
		return err
	}
	g.Markers = CountMarkers(log, g.Models) // of the log that is kept
	doc, err := schemas.Encode(*g)
	if err != nil {
		return err
	}
	if err := schemas.Validate("graphs", doc); err != nil {
		return err
	}
	config, err := readPlain(task.Service.Config, maxConfigBytes)
	if err != nil {
		return err
	}
	for _, out := range []struct {
		output, file string
		content      []byte
	}{{OutputAnswers, AnswersFile, append(doc, '\n')}, {OutputLog, LogFile, log}, {OutputConfig, ConfigFile, config}} {
		path, err := task.OutputFile(out.output, out.file)
		if err != nil {
			return err
		}
		if err := durable.WriteFile(path, out.content, 0o644); err != nil {
			return &pipeline.InfraError{Op: "write " + out.file, Err: err}
		}
	}
	if g.Mode != schemas.GraphsSave {
		return nil
	}
	if task.Service.GraphArchive == "" {
		return fmt.Errorf("service %s has no folder of archives", task.Service.Name)
	}
	dir, err := task.OutputDir(OutputArchive)
	if err != nil {
		return err
	}
	return copyFolder(task.Service.GraphArchive, dir)
}

const maxConfigBytes = 4 << 20

func readPlain(path string, limit int64) ([]byte, error) {
	f, err := durable.OpenPlain(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: larger than %d bytes", filepath.Base(path), limit)
	}
	return b, nil
}

// copyFolder copies the plain files of a folder into another, which is there. What
// is neither file nor folder is refused.
func copyFolder(from, to string) error {
	in, err := os.OpenRoot(from)
	if err != nil {
		return fmt.Errorf("folder of archives: %w", err)
	}
	defer in.Close()
	out, err := durable.OpenRoot(to)
	if err != nil {
		return &pipeline.InfraError{Op: "copy a folder", Err: err}
	}
	defer out.Close()
	return fs.WalkDir(in.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == ".":
			return nil
		case d.IsDir():
			return out.Mkdir(p)
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is neither a file nor a folder: archives hold nothing else", p)
		}
		return copyFile(in, out, p)
	})
}

func copyFile(in *os.Root, out *durable.Root, p string) error {
	r, err := in.Open(p)
	if err != nil {
		return err
	}
	defer r.Close()
	if info, err := r.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s was replaced while it was read", p), err)
	}
	w, err := out.Create(p, 0o644)
	if err != nil {
		return &pipeline.InfraError{Op: "copy " + p, Err: err}
	}
	if _, err := io.Copy(w, r); err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", p, err), w.Close())
	}
	return w.Close()
}
