package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"assay/experiments"
	"assay/internal/durable"
	"assay/preflight/host"
	"assay/schemas"
)

func factsFlag() cli.Flag {
	return &cli.StringFlag{Name: "facts", Usage: "judge the host whose facts are in `FILE`, as `assay doctor --facts` records them, in place of this machine"}
}

// recordFlags are those of doctor.
func recordFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "facts", Usage: "record the facts of this host in `FILE`, for `assay preflight --facts`, and check nothing"},
		&cli.StringFlag{Name: "machine", Usage: "with --facts: also the folders of weights that the machine `FILE` names, and with the variables that it sets for services (default: none)"},
		&cli.BoolFlag{Name: "force", Usage: "with --facts: replace the file if there is one"},
	}
}

// recordFacts writes the facts of this host: no secret, and names, sizes and headers
// alone of weights.
func recordFacts(c *call) error {
	path := c.String("facts")
	if path == "" {
		return usagef("--facts wants the name of a file")
	}
	if _, err := os.Lstat(path); err == nil && !c.Bool("force") {
		return usagef("%s is there already: --force replaces it", path)
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var m experiments.Machine
	if file := c.String("machine"); file != "" && file != "none" {
		var err error
		if m, err = experiments.LoadMachine(file); err != nil {
			return withCode(ExitUsage, err)
		}
	}
	env, err := machineEnv(m)
	if err != nil {
		return withCode(ExitUsage, err)
	}
	dir, err := filepath.Abs(c.storeDir())
	if err != nil {
		return err
	}
	facts := host.Collect(c.ctx, host.Sources{Now: time.Now(), DiskDir: nearestFolder(dir), Run: probe, Programs: slices.Sorted(maps.Values(m.Values)),
		Env: func(name string) string { return cmp.Or(env[name], os.Getenv(name)) }})
	for _, model := range slices.Sorted(maps.Keys(m.Checkpoints)) {
		facts.Folders = append(facts.Folders, host.RecordFolder(c.ctx, model, m.Checkpoints[model]))
	}
	b, err := schemas.Encode(facts)
	if err == nil {
		_, err = host.Decode("facts of this host", b)
	}
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(facts)
	}
	c.printf("facts of %s are in %s: %s\n", facts.Host, path, factsText(facts))
	for _, name := range slices.Sorted(maps.Keys(facts.Unknown)) {
		c.printf("  unknown  %s: %s\n", name, facts.Unknown[name])
	}
	return nil
}

// machineEnv is what the machine file sets for services, as far as it is plain. A
// variable that two services set differently is neither's.
func machineEnv(m experiments.Machine) (map[string]string, error) {
	out := map[string]string{}
	for _, service := range slices.Sorted(maps.Keys(m.Env)) {
		for name, v := range m.Env[service] {
			if strings.Contains(v, "${") {
				continue
			}
			if before, twice := out[name]; twice && before != v {
				return nil, fmt.Errorf("%s: services set %s differently: record the facts of each with a machine file of its own", m.File, name)
			}
			out[name] = v
		}
	}
	return out, nil
}

func factsText(f schemas.HostFacts) string {
	return fmt.Sprintf("%d GPUs, %d NPUs, %d packages, %d folders of weights", len(f.GPUs), len(f.NPUs), len(f.Packages), len(f.Folders))
}

// readFacts are those that --facts names, nil without it.
func readFacts(c *call) (*schemas.HostFacts, error) {
	if !c.IsSet("facts") {
		return nil, nil
	}
	f, err := host.ReadFile(c.String("facts"))
	if err != nil {
		return nil, withCode(ExitUsage, err)
	}
	return &f, nil
}
