package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/experiments"
	"assay/schemas"
)

// replayFile is the name of the experiment that replay makes up.
const replayFile = "replay"

func replayCommand() *command {
	return &command{
		name: "replay", args: "--csv FILE --url URL", summary: "replay a CSV of arrivals against a service that is up, and archive it",
		details: "A shortcut for an experiment with one attached OpenAI-compatible service: same\npipeline, same archive. Both CSV forms of Aegaeon's tools are read.\nRequests are sent when the CSV says, or with --concurrency as others end.",
		example: "assay replay --csv trace.csv --url http://127.0.0.1:8000 --models qwen,llama --speed 20\n  assay replay --csv trace.csv --url http://127.0.0.1:8000 --concurrency 16 --duration 2m",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "csv", Usage: "`FILE` of arrivals"},
			&cli.StringFlag{Name: "url", Usage: "base `URL` of the service, without /v1"},
			&cli.StringFlag{Name: "models", Usage: "the service's model names `A,B`, in the order of the workload's models (default: all that it lists, by name)"},
			&cli.StringFlag{Name: "speed", Value: "1", Usage: "arrivals are `N` times as fast as written"},
			&cli.StringFlag{Name: "window", Usage: "only arrivals in `FROM,TO` of the workload's own time, like 10s,60s"},
			&cli.IntFlag{Name: "concurrency", Usage: "closed loop: `N` requests in flight, in the order and with the lengths of the CSV, whose times are not used"},
			&cli.StringFlag{Name: "duration", Usage: "closed loop: begin no request after this `TIME`"},
			&cli.StringFlag{Name: "at-end", Usage: "closed loop with --duration: `drain` (wait for those in flight, the default) or cut"},
			&cli.StringFlag{Name: "slo-ttft", Value: "10s", Usage: "target `TIME` to first token"},
			&cli.StringFlag{Name: "slo-tpot", Value: "100ms", Usage: "target `TIME` per output token"},
			&cli.StringFlag{Name: "api", Value: "completions", Usage: "`NAME` of the endpoint: completions or chat"},
			&cli.StringFlag{Name: "prompts", Usage: "what the service takes as the prompt of a completion: `ids` (the default) or text"},
			&cli.StringFlag{Name: "tokenize", Usage: "how it counts tokens, for exact lengths of text: `STYLE` vllm, llama.cpp, llama-cpp-python or usage"},
			&cli.StringFlag{Name: "hold", Usage: "what holds it to an output length: `FIELD` ignore_eos (the default) or min_tokens"},
			apiKeyFlag(),
			&cli.StringFlag{Name: "tag", Usage: "name the run `TAG`"},
		},
		run: runReplay,
	}
}

func runReplay(c *call) error {
	for _, name := range []string{"csv", "url"} {
		if c.String(name) == "" {
			return usagef("--%s is missing: want `assay replay --csv FILE --url URL`", name)
		}
	}
	if u, err := url.Parse(c.String("url")); err != nil || u.User != nil {
		return usagef("--url: want http://HOST:PORT without a user: the command line is archived")
	}
	if c.IsSet("tag") {
		if err := checkTag(c.String("tag")); err != nil {
			return err
		}
	}
	if _, err := c.apiKeyVariable(); err != nil {
		return withCode(ExitUsage, err)
	}
	l, err := replayExperiment(c)
	if err != nil {
		return err
	}
	return execute(c, l)
}

// replayKey is the secret that stands for the service's API key.
const replayKey = "api-key"

// replayReady is how long a service that is said to be up may take to answer.
const replayReady = "10s"

// replayExperiment makes up the experiment file that the flags stand for, and
// reads it as strictly as any other. The CSV goes by its bare name, so that no
// path of this machine gets into the archive.
func replayExperiment(c *call) (*loaded, error) {
	csv, err := filepath.Abs(c.String("csv"))
	if err != nil {
		return nil, fmt.Errorf("--csv: %w", err)
	}
	var speed json.Number
	if err := json.Unmarshal([]byte(c.String("speed")), &speed); err != nil {
		return nil, usagef("--speed %q: want a number", c.String("speed"))
	}
	measure := map[string]any{"kind": "measure", "needs": []string{"check"}, "service": "engine", "workload": "${param.workload}", "speed": speed,
		"api": c.String("api"), "slo": map[string]any{"ttft": c.String("slo-ttft"), "tpot": c.String("slo-tpot")}}
	if c.String("models") != "" {
		measure["models"] = strings.Split(c.String("models"), ",")
	}
	if c.String("window") != "" {
		measure["window"] = strings.Split(c.String("window"), ",")
	}
	if err := closedLoop(c, measure); err != nil {
		return nil, err
	}
	service := map[string]any{"engine": "openai", "url": c.String("url"), "restart": "run", "ready_timeout": replayReady}
	for _, name := range []string{"prompts", "hold"} {
		if c.IsSet(name) {
			service[name] = c.String(name)
		}
	}
	if c.IsSet("tokenize") {
		service["tokenize"] = map[string]any{"style": c.String("tokenize")}
	}
	if c.IsSet("api-key-env") {
		service[schemas.FieldAPIKey] = "${secret." + replayKey + "}"
	}
	doc, err := json.Marshal(map[string]any{
		"schema": schemas.ExperimentV1, "name": "replay", "title": "Replay of " + filepath.Base(csv),
		"params":  map[string]any{"workload": map[string]any{"path": filepath.Base(csv)}},
		"service": map[string]any{"engine": service},
		"stage": map[string]any{
			"check":  map[string]any{"kind": "preflight"},
			"replay": measure,
			"report": map[string]any{"kind": "report", "needs": []string{"replay"}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	exp, err := experiments.ParseJSON(replayFile, doc, experiments.Options{Dir: filepath.Dir(csv), Machine: "none"})
	if err != nil {
		return nil, withCode(ExitUsage, err)
	}
	exp.Source = nil // it was not made from a file
	if c.IsSet("api-key-env") {
		exp.Machine.Secrets = map[string]string{replayKey: "env:" + c.String("api-key-env")}
	}
	return planned(exp)
}

// closedLoop adds the keys of a replay that sends as requests end. A count of 0 is
// for the experiment's own check to refuse.
func closedLoop(c *call, measure map[string]any) error {
	if !c.IsSet("concurrency") {
		for _, name := range []string{"duration", "at-end"} {
			if c.IsSet(name) {
				return usagef("--%s belongs to --concurrency: without it the CSV says when requests arrive, and --window cuts it", name)
			}
		}
		return nil
	}
	measure["concurrency"] = c.Int("concurrency")
	for flag, key := range map[string]string{"duration": "duration", "at-end": "at_end"} {
		if c.IsSet(flag) {
			measure[key] = c.String(flag)
		}
	}
	return nil
}
