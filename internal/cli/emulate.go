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
	"assay/internal/engines/emulated"
)

// maxEmulateConfig is more than any configuration that the engine takes.
const maxEmulateConfig = 8 << 20

func emulateCommand() *command {
	return &command{
		name: "emulate", args: "--models A,B | --config FILE", summary: "serve the emulated engine until interrupted",
		details: "A real HTTP server on loopback with an OpenAI-compatible API and made-up\nlatencies. Prints its URL once it listens. FILE is JSON: the keys of a service of\nengine \"emulated\" (`assay schema --describe`).",
		example: "assay emulate --models alpha,beta --listen :8000",
		flags: []cli.Flag{
			&cli.StringFlag{Name: "models", Usage: "names `A,B` of models with the default latencies"},
			&cli.StringFlag{Name: "config", Usage: "`FILE` with the whole configuration, as JSON"},
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:0", Usage: "loopback `ADDRESS`; port 0 is any free one"},
			&cli.StringFlag{Name: "emission-log", Usage: "append the true emission time of every chunk to `FILE`, as JSON lines"},
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

func emulateConfig(c *call) (emulated.Config, error) {
	file, models := c.String("config"), c.String("models")
	switch {
	case file != "" && models != "":
		return emulated.Config{}, errors.New("--models and --config exclude each other")
	case file != "":
		return readEmulateConfig(file)
	case models == "":
		return emulated.Config{}, errors.New("nothing to serve: name models with --models A,B, or a file with --config FILE")
	}
	list := []any{}
	for _, name := range strings.Split(models, ",") {
		list = append(list, map[string]any{"name": strings.TrimSpace(name)})
	}
	return emulated.FromMap(map[string]any{"models": list})
}

func readEmulateConfig(file string) (emulated.Config, error) {
	f, err := durable.OpenRegular(file)
	if err != nil {
		return emulated.Config{}, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEmulateConfig))
	if err != nil {
		return emulated.Config{}, fmt.Errorf("--config %s: %w", file, err)
	}
	config, err := emulated.ParseConfig(b)
	if err != nil {
		return config, fmt.Errorf("--config %s: %w", file, err)
	}
	return config, nil
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
