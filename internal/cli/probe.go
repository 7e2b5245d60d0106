package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"assay/internal/engines"
	"assay/internal/engines/aegaeon"
	probing "assay/internal/probe"
	"assay/internal/redact"
	"assay/internal/workload"
	"assay/pipeline"
	"assay/schemas"
)

// defaultProbeTokens is what Aegaeon's own demo asks for.
const defaultProbeTokens = 500

func probeCommand() *command {
	return &command{
		name: "probe", args: "[--base-url URL] [--model NAME]", summary: "send one request, or some at random times, to a service that is up",
		details: "Prints when the first text came, what else came when, chunks and tokens, and the\ntext. Works with any OpenAI-compatible service. Without --model, the models of\n--model-config take turns, else those that the service lists; a single request goes to\nthe first. Each result gets a new folder below --out: probe.json, the request records\nand the schedule.",
		example: "assay probe --host 127.0.0.1 --port 8000 --model-config config.yaml --model qwen --single\n  assay probe --base-url https://api.example.com/v1 --api-key-env API_KEY --model m --prompt 'Say hello.'\n  assay probe --port 8000 --arrival-rate 2 --duration 30s",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "base-url", Usage: "`URL` of the service, with or without /v1; instead of --host and --port"},
			&cli.StringFlag{Name: "host", Value: "127.0.0.1", Usage: "`HOST` of the service"},
			&cli.IntFlag{Name: "port", Value: 8000, Usage: "`PORT` of the service"},
			&cli.StringFlag{Name: "model-config", Usage: "Aegaeon's YAML `FILE`, whose models are asked"},
			&cli.StringSliceFlag{Name: "model", Usage: "`NAME` of the model to ask; again for another, which take turns"},
			&cli.BoolFlag{Name: "single", Usage: "send one request (what is done without --arrival-rate)"},
			&cli.StringFlag{Name: "arrival-rate", Usage: "`N` requests a second on average, with exponential gaps, for --duration"},
			&cli.StringFlag{Name: "duration", Usage: "`TIME` of arrivals, like 30s"},
			&cli.StringFlag{Name: "seed", Value: "0", Usage: "`N` that the gaps are drawn from"},
			&cli.StringSliceFlag{Name: "prompt", Usage: "`TEXT` to send; again for another, which take turns"},
			&cli.StringFlag{Name: "prompt-file", Usage: "`FILE` with a prompt a line; .jsonl with prompt or text, and .json of conversations, too"},
			&cli.IntFlag{Name: "max-tokens", Value: defaultProbeTokens, Usage: "most `N` tokens of an answer"},
			&cli.StringFlag{Name: "api", Value: "chat", Usage: "`NAME` of the endpoint: chat or completions"},
			apiKeyFlag(),
			&cli.StringFlag{Name: "timeout", Value: "10m", Usage: "`TIME` limit of one request"},
			&cli.StringFlag{Name: "out", Value: "probes", Usage: "`DIR` below which this result gets its folder"},
		},
		run: runProbe,
	}
}

type probeDoc struct {
	Path string `json:"path"` // of the summary
	schemas.Probe
}

func runProbe(c *call) error {
	o, err := c.probeOptions()
	if err != nil {
		return withCode(ExitUsage, err)
	}
	if err := c.probeModels(&o); err != nil {
		return err
	}
	if o.ID, err = pipeline.NewRunID(time.Now()); err != nil {
		return err
	}
	shown := c.progress()
	o.Progress = func(done, total int64, text string) {
		shown.event(pipeline.Event{Type: "progress", Node: "probe", Done: done, Total: total, Text: text})
	}
	plan, err := probing.NewPlan(o)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	doc, dir, err := probing.Run(c.ctx, plan, c.String("out"))
	shown.close()
	if dir == "" {
		return err
	}
	file := filepath.Join(dir, probing.SummaryFile)
	if c.asJSON {
		if perr := c.printJSON(probeDoc{file, doc}); perr != nil {
			return errors.Join(err, perr)
		}
	} else {
		c.printf("%s\nsaved in %s\n", probeText(doc), file)
	}
	if err == nil && doc.Result.Counts.OK < doc.Result.Counts.Issued {
		return exitWith(ExitFailed)
	}
	return err
}

// probeOptions reads the flags; nothing is asked of the service.
func (c *call) probeOptions() (probing.Options, error) {
	o := probing.Options{API: c.String("api"), MaxTokens: c.Int("max-tokens")}
	if o.API != "chat" && o.API != "completions" {
		return o, fmt.Errorf("--api %q: want chat or completions", o.API)
	}
	if o.MaxTokens < 1 || o.MaxTokens > 1e7 {
		return o, fmt.Errorf("--max-tokens %d: want 1 to 10000000", o.MaxTokens)
	}
	var err error
	if o.Seed, err = strconv.ParseUint(c.String("seed"), 10, 53); err != nil {
		return o, fmt.Errorf("--seed %q: want a whole number from 0 to 9007199254740991", c.String("seed"))
	}
	timeout, err := schemas.ParseDuration(c.String("timeout"))
	if err != nil || timeout <= 0 {
		return o, fmt.Errorf("--timeout %q: want a time above 0, like 30s", c.String("timeout"))
	}
	o.RequestTimeout = timeout.Std()
	for _, read := range []func(*probing.Options) error{c.probeURL, c.probeTimes, c.probePrompts, c.probeKey} {
		if err := read(&o); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (c *call) probeURL(o *probing.Options) error {
	if !c.IsSet("base-url") {
		if p := c.Int("port"); p < 1 || p > 65535 {
			return fmt.Errorf("--port %d: want 1 to 65535", p)
		}
		host := strings.Trim(c.String("host"), "[]")
		if host == "" || strings.ContainsAny(host, "/@? ") {
			return errors.New("--host: want a name or an address; a whole URL goes to --base-url")
		}
		o.BaseURL = "http://" + net.JoinHostPort(host, strconv.Itoa(c.Int("port")))
		return nil
	}
	if c.IsSet("host") || c.IsSet("port") {
		return errors.New("--base-url says host and port already: leave --host and --port out")
	}
	u, err := url.Parse(c.String("base-url"))
	if err != nil || u.User != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--base-url: want http://HOST:PORT or https://HOST, without a user or a query; a key goes by --api-key-env")
	}
	o.BaseURL = strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1")
	return nil
}

func (c *call) probeTimes(o *probing.Options) error {
	switch timed := c.IsSet("arrival-rate") || c.IsSet("duration"); {
	case timed && c.Bool("single"):
		return errors.New("--single sends one request: leave --arrival-rate and --duration out")
	case !timed:
		return nil
	case !c.IsSet("arrival-rate") || !c.IsSet("duration"):
		return errors.New("--arrival-rate and --duration go together: requests arrive at that rate for that time")
	}
	var err error
	if o.Rate, err = positiveNumber(c.String("arrival-rate")); err != nil {
		return fmt.Errorf("--arrival-rate %q: %w", c.String("arrival-rate"), err)
	}
	d, err := schemas.ParseDuration(c.String("duration"))
	if err != nil {
		return fmt.Errorf("--duration: %w", err)
	}
	if d <= 0 {
		return fmt.Errorf("--duration %s: want more than 0", c.String("duration"))
	}
	o.Duration = d.Std()
	return nil
}

func (c *call) probePrompts(o *probing.Options) error {
	o.Prompts = c.StringSlice("prompt")
	if slices.Contains(o.Prompts, "") {
		return errors.New("--prompt is empty")
	}
	file := c.String("prompt-file")
	if file == "" {
		return nil
	}
	if len(o.Prompts) > 0 {
		return errors.New("--prompt and --prompt-file exclude each other")
	}
	opts := workload.Options{Name: file, Form: workload.FormText, Models: []string{"any"}} // models take turns by themselves
	if slices.Contains([]string{".json", ".jsonl", ".ndjson"}, strings.ToLower(filepath.Ext(file))) {
		opts.Form = "" // told from the content
	}
	w, err := workload.ReadFile(file, opts)
	if err != nil {
		return fmt.Errorf("--prompt-file: %w", err)
	}
	for _, r := range w.Requests {
		if r.Text == "" {
			return fmt.Errorf("--prompt-file %s: form %s holds no texts", file, w.Form)
		}
		o.Prompts = append(o.Prompts, r.Text)
	}
	if len(o.Prompts) == 0 {
		return fmt.Errorf("--prompt-file %s: no prompt in it", file)
	}
	return nil
}

func (c *call) probeKey(o *probing.Options) error {
	key, value, err := c.apiKey()
	if err == nil && key.Given() {
		o.Headers = key.Header()
		o.Hide = redact.New(map[string]string{value: "***"}).String
	}
	return err
}

// probeModels settles which models are asked: those named, those of the
// configuration, or those that the service lists.
func (c *call) probeModels(o *probing.Options) error {
	if file := c.String("model-config"); file != "" {
		list, err := aegaeon.ReadModels(file)
		if err != nil {
			return withCode(ExitUsage, fmt.Errorf("--model-config: %w", err))
		}
		for _, m := range list {
			o.Models = append(o.Models, m.Name)
		}
		o.ModelSource = "the configuration " + filepath.Base(file)
	}
	if named := c.StringSlice("model"); len(named) > 0 {
		for _, m := range named {
			if m == "" {
				return usagef("--model is empty")
			}
			if len(o.Models) > 0 && !slices.Contains(o.Models, m) {
				return usagef("--model %q: %s has %s%s", m, c.String("model-config"), strings.Join(o.Models, ", "), maybe(m, o.Models))
			}
		}
		o.Models, o.ModelSource = named, "--model"
	}
	listed, emulated, err := engines.List(c.ctx, o.BaseURL, o.Headers)
	o.Emulated = emulated
	switch {
	case len(o.Models) > 0: // what is asked is known; a service need not list its models
	case err != nil:
		return fmt.Errorf("%s: %s; name a model with --model", o.BaseURL, hidden(o, err.Error()))
	case len(listed) == 0:
		return usagef("%s lists no models: name one with --model", o.BaseURL)
	default:
		o.Models, o.ModelSource = listed, "the service's list"
	}
	if !o.Timed() {
		o.Models = o.Models[:1]
	}
	return nil
}

func hidden(o *probing.Options, text string) string {
	if o.Hide == nil {
		return text
	}
	return o.Hide(text)
}

func maybe(name string, of []string) string {
	if near := schemas.Nearest(name, of); near != "" {
		return fmt.Sprintf(" (did you mean %s?)", near)
	}
	return ""
}
