package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"assay/internal/durable"
	"assay/internal/engines"
	"assay/internal/engines/emulated"
)

// maxEmulateConfig is more than any configuration that the engine takes.
const maxEmulateConfig = 8 << 20

func emulateCommand() *command {
	return &command{
		name: "emulate", args: "--models A,B | --config FILE | --aegaeon-config FILE", summary: "serve the emulated engine until interrupted",
		details: "A real HTTP server on loopback with made-up latencies. Prints its URL once it\nlistens. FILE of --config is JSON: the keys of a service of engine \"emulated\"\n(`assay schema --describe`). With --policy, requests contend for a simulated\nsystem of devices. --offline generates what --prompt asks for, prints what\nPyPTO's command line would, and ends.",
		example: "assay emulate --models alpha,beta --personality aegaeon --policy aegaeon --workers 4",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "models", Usage: "names `A,B` of models with the default latencies"},
			&cli.StringFlag{Name: "config", Usage: "`FILE` with the whole configuration, as JSON"},
			&cli.StringFlag{Name: "aegaeon-config", Usage: "Aegaeon's YAML `FILE`: its models, engines and policies"},
			&cli.StringFlag{Name: "personality", Usage: "`NAME` of the server whose endpoints, checks and errors it has: openai, aegaeon, pypto or vllm"},
			&cli.StringFlag{Name: "policy", Usage: "`NAME` of how requests are placed: serverlessllm, serverlessllm-plus or aegaeon; without it they do not contend"},
			&cli.IntFlag{Name: "workers", Usage: "`NUMBER` of devices, with --policy (default: 16)"},
			&cli.Float64Flag{Name: "time-scale", Usage: "`FACTOR` by which all is faster"},
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:0", Usage: "loopback `ADDRESS`; port 0 is any free one"},
			&cli.StringFlag{Name: "emission-log", Usage: "append the true emission time of every chunk to `FILE`, as JSON lines"},
			&cli.BoolFlag{Name: "offline", Usage: "generate what --prompt asks for, print PyPTO's lines, and end"},
			&cli.StringSliceFlag{Name: "prompt", Usage: "`TEXT` to answer offline; may be given again"},
			&cli.StringFlag{Name: "generate-config", Usage: "`JSON` object: max_new_tokens, stop, stream, ignore_eos, ... of --offline"},
		},
		run: runEmulate,
	}
}

type emulateDoc struct {
	URL      string   `json:"url"`
	Models   []string `json:"models"`
	Emulated bool     `json:"emulated"`
	PID      int      `json:"pid"`
}

func runEmulate(c *call) error {
	config, err := emulateConfig(c)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	if c.Bool("offline") {
		return emulateOffline(c, config)
	}
	if c.IsSet("prompt") || c.IsSet("generate-config") {
		return withCode(ExitUsage, errors.New("--prompt and --generate-config are for --offline"))
	}
	listen := c.String("listen")
	if strings.HasPrefix(listen, ":") {
		listen = "127.0.0.1" + listen
	}
	log := io.Discard
	if !c.quiet {
		log = c.stderr
	}
	var printed error
	err = emulated.Serve(c.ctx, config, emulated.Options{
		Listen: listen, EmissionLog: c.String("emission-log"), Log: log,
		Ready: func(addr string) { printed = c.announce(addr, config) },
	})
	return errors.Join(err, printed)
}

// emulateConfig is what the flags say: a file's keys, and those of other flags.
func emulateConfig(c *call) (emulated.Config, error) {
	keys := map[string]any{}
	given := 0
	if file := c.String("config"); file != "" {
		given++
		var err error
		if keys, err = readEmulateConfig(file); err != nil {
			return emulated.Config{}, err
		}
	}
	if models := c.String("models"); models != "" {
		given++
		list := []any{}
		for _, name := range strings.Split(models, ",") {
			list = append(list, map[string]any{"name": strings.TrimSpace(name)})
		}
		keys["models"] = list
	}
	if file := c.String("aegaeon-config"); file != "" {
		given++
		keys["aegaeon_config"] = file
	}
	switch given {
	case 0:
		return emulated.Config{}, errors.New("nothing to serve: name models with --models A,B, or a file with --config FILE or --aegaeon-config FILE")
	case 1:
	default:
		return emulated.Config{}, errors.New("--models, --config and --aegaeon-config exclude each other")
	}
	emulateFlags(c, keys)
	config, err := engines.EmulatedConfig(keys)
	if file := c.String("config"); file != "" && err != nil {
		return config, fmt.Errorf("--config %s: %w", file, err)
	}
	return config, err
}

// emulateFlags puts what single flags say over what a file says.
func emulateFlags(c *call, keys map[string]any) {
	if c.IsSet("personality") {
		keys["personality"] = c.String("personality")
	}
	if c.IsSet("time-scale") {
		keys["time_scale"] = c.Float64("time-scale")
	}
	system, _ := keys["serving"].(map[string]any)
	if system == nil {
		system = map[string]any{}
	}
	if c.IsSet("policy") {
		system["policy"] = c.String("policy")
	}
	if c.IsSet("workers") {
		system["workers"] = c.Int("workers")
	}
	if len(system) > 0 {
		keys["serving"] = system
	}
}

func readEmulateConfig(file string) (map[string]any, error) {
	f, err := durable.OpenRegular(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEmulateConfig))
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", file, err)
	}
	keys, err := emulated.ParseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", file, err)
	}
	return keys, nil
}

// emulateOffline generates and prints.
func emulateOffline(c *call, config emulated.Config) error {
	if c.asJSON {
		return withCode(ExitUsage, errors.New("--offline prints the lines of another program: it has no JSON form"))
	}
	o := emulated.Offline{Prompts: c.StringSlice("prompt"), GenerateConfig: c.String("generate-config")}
	if err := o.Check(config); err != nil {
		return withCode(ExitUsage, err)
	}
	*c.wrote = true
	return emulated.Generate(c.ctx, config, o, c.stdout)
}

// announce prints where the engine listens: one line, in JSON too, since who
// waits for it reads a line.
func (c *call) announce(addr string, config emulated.Config) error {
	doc := emulateDoc{URL: "http://" + addr, Emulated: true, PID: os.Getpid()}
	for _, m := range config.Models {
		doc.Models = append(doc.Models, m.Name)
	}
	line := fmt.Sprintf("%s (emulated: latencies are made up; models %s)", doc.URL, strings.Join(doc.Models, ", "))
	if c.asJSON {
		b, err := json.Marshal(doc)
		if err != nil {
			return err
		}
		line = string(b)
	}
	*c.wrote = true
	_, err := fmt.Fprintln(c.stdout, line)
	return err
}
