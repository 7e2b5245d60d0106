package experiments

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/schemas"
)

// Machine is what is true of this machine only. None of it enters a key.
type Machine struct {
	File   string            // "" when there is none
	Values map[string]string // ${machine.NAME}
	// Secrets says where each secret comes from: "env:VARIABLE" or "file:PATH".
	Secrets map[string]string
	// Checkpoints are folders of weights by the names of models; Facts is what is
	// known of the machine that serves.
	Checkpoints, Facts map[string]string
	// Env holds extra environment variables per service; values may hold ${secret.NAME}.
	Env map[string]map[string]string
	// Services hold, by name, what serves here in place of what an experiment says.
	Services map[string]map[string]any
}

// Secret is a value that prints and encodes as a placeholder. Only Reveal gives it.
type Secret struct{ value string }

const redacted = "(secret)"

// Reveal returns the secret itself, for the environment of a child process.
func (s Secret) Reveal() string { return s.value }

func (Secret) String() string               { return redacted }
func (Secret) GoString() string             { return redacted }
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// maxSecretBytes bounds a secret's file.
const maxSecretBytes = 64 << 10

// Secret reads a secret now: from the environment, or from a file relative to
// the machine file, without the line end. An error never holds the value.
func (m Machine) Secret(name string) (Secret, error) {
	from, ok := m.Secrets[name]
	if !ok {
		where := "there is no machine file"
		if m.File != "" {
			where = "add it to [secrets] of " + m.File
		}
		return Secret{}, fmt.Errorf("secret %q: %s", name, where)
	}
	if variable, ok := strings.CutPrefix(from, "env:"); ok {
		value, set := os.LookupEnv(variable)
		if !set {
			return Secret{}, fmt.Errorf("secret %q: the environment variable %s is not set", name, variable)
		}
		return Secret{value}, nil
	}
	path := strings.TrimPrefix(from, "file:")
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(m.File), path)
	}
	b, err := readFile(path)
	if err != nil {
		return Secret{}, fmt.Errorf("secret %q: %w", name, err)
	}
	if len(b) > maxSecretBytes {
		return Secret{}, fmt.Errorf("secret %q: %s has more than %d bytes", name, path, maxSecretBytes)
	}
	return Secret{strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")}, nil
}

// findMachine loads the machine file that the options name.
func findMachine(opts Options, cwd string) (Machine, error) {
	switch opts.Machine {
	case "none":
		return Machine{}, nil
	case "":
		dir := opts.MachineDir
		if dir == "" {
			dir = cwd
		}
		m, err := LoadMachine(filepath.Join(dir, MachineFile))
		if errors.Is(err, fs.ErrNotExist) {
			return Machine{}, nil
		}
		return m, err
	}
	path := opts.Machine
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	return LoadMachine(path)
}

// LoadMachine reads a machine file. Faults of the file come as *InvalidError.
func LoadMachine(path string) (Machine, error) {
	data, err := readFile(path)
	if err != nil {
		return Machine{}, fmt.Errorf("machine file %s: %w", path, err)
	}
	p := &problems{file: path}
	tree := decodeTOML(p, data)
	if err := p.err(); err != nil {
		return Machine{}, err
	}
	checkMachine(p, tree)
	if err := p.err(); err != nil {
		return Machine{}, err
	}
	m := Machine{File: path, Values: stringMap(tree["values"]), Secrets: stringMap(tree["secrets"]), Checkpoints: map[string]string{}, Facts: stringMap(tree["facts"]), Env: map[string]map[string]string{}, Services: map[string]map[string]any{}}
	checkpoints, _ := tree["checkpoint"].([]any)
	for _, v := range checkpoints {
		t := stringMap(v)
		m.Checkpoints[t["model"]] = t["path"]
	}
	services, _ := tree["service"].(table)
	for name, v := range services {
		t := v.(table)
		m.Env[name] = stringMap(t["env"])
		own := table{}
		for k, x := range t {
			if k != "env" {
				own[k] = x
			}
		}
		if len(own) > 0 {
			m.Services[name] = own
		}
	}
	return m, nil
}

// takeServices puts what serves on this machine in place of what the experiment says:
// the effective experiment has it. Keys that the engine here has too are kept.
func takeServices(tree table, m Machine) {
	services, _ := tree["service"].(table)
	for name, own := range m.Services {
		written, ok := services[name].(table)
		if !ok {
			continue // the machine file serves other experiments too
		}
		engine, _ := own["engine"].(string)
		fields, _ := schemas.EngineFields(engine)
		taken := table{}
		for _, f := range fields {
			if v, ok := written[f.Name]; ok {
				taken[f.Name] = v
			}
		}
		for k, v := range own {
			taken[k] = v
		}
		services[name] = taken
	}
}

func checkMachine(p *problems, tree table) {
	c := &checker{problems: p}
	c.violations("", schemas.CheckTable(schemas.MachineFields(), tree, false))
	if len(p.list) > 0 {
		return
	}
	secrets := stringMap(tree["secrets"])
	for _, name := range sortedKeys(secrets) {
		kind, rest, _ := strings.Cut(secrets[name], ":")
		if rest == "" || (kind != "env" && kind != "file") {
			// The text may be the secret itself, so it is not repeated.
			p.at(schemas.Pointer("secrets", name), "", "secrets: %s: want \"env:VARIABLE\" or \"file:PATH\", not the secret itself", name)
		}
	}
	checkpoints, _ := tree["checkpoint"].([]any)
	seen := map[string]bool{}
	for i, v := range checkpoints {
		t, at := stringMap(v), schemas.Pointer("checkpoint", strconv.Itoa(i))
		switch {
		case seen[t["model"]]:
			p.at(at+"/model", "", "checkpoint: model %q is there twice", t["model"])
		case !filepath.IsAbs(t["path"]):
			p.at(at+"/path", "", "checkpoint: path %q is not absolute", t["path"])
		}
		seen[t["model"]] = true
	}
	values := stringMap(tree["values"])
	for _, name := range sortedKeys(values) {
		if strings.Contains(values[name], "${") {
			p.at(schemas.Pointer("values", name), "", "no ${...} is expanded here")
		}
	}
	services, _ := tree["service"].(table)
	for _, name := range sortedKeys(services) {
		checkMachineService(p, services[name].(table), schemas.Pointer("service", name))
		env := stringMap(services[name].(table)["env"])
		for _, k := range sortedKeys(env) {
			checkMachineEnv(p, secrets, env[k], schemas.Pointer("service", name, "env", k))
		}
	}
}

// checkMachineService wants the engine with all that says how it is started.
func checkMachineService(p *problems, t table, at string) {
	engine, named := t["engine"].(string)
	for _, k := range sortedKeys(t) {
		if k != "env" && !named {
			p.at(at+schemas.Pointer(k), "", "%s: say engine too: it takes the place of the experiment's service", k)
		}
	}
	if !named {
		return
	}
	fields, known := schemas.EngineFields(engine)
	if !known {
		var names []string
		for _, e := range schemas.Engines() {
			names = append(names, e.Name)
		}
		p.at(at+"/engine", schemas.Nearest(engine, names), "unknown engine %q: there are %s", engine, strings.Join(names, ", "))
		return
	}
	for _, k := range sortedKeys(t) {
		if !slices.ContainsFunc(fields, func(f schemas.Field) bool { return f.Name == k }) && k != "env" {
			p.at(at+schemas.Pointer(k), "", "%s: engine %s has no such key", k, engine)
		}
	}
}

func checkMachineEnv(p *problems, secrets map[string]string, s, at string) {
	segments, err := schemas.ParseTemplate(s)
	if err != nil {
		p.at(at, "", "%v", err)
		return
	}
	for _, g := range segments {
		switch {
		case g.Ref == nil:
		case g.Ref.Namespace != schemas.RefSecret:
			p.at(at, "", "env: %s: the machine file refers to secrets only", g.Ref.Text)
		default:
			if _, ok := secrets[g.Ref.Names[0]]; !ok {
				p.at(at, schemas.Nearest(g.Ref.Names[0], sortedKeys(secrets)), "env: there is no secret %q in [secrets]", g.Ref.Names[0])
			}
		}
	}
}

func stringMap(v any) map[string]string {
	out := map[string]string{}
	t, _ := v.(table)
	for k, x := range t {
		out[k], _ = x.(string)
	}
	return out
}
