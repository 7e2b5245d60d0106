package experiments

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"assay/schemas"
)

// MachineFile is the name of the machine file that is found by itself.
const MachineFile = "assay.machine.toml"

// Options of loading. The zero value reads the file as it stands, with the
// machine file in the current folder if there is one.
type Options struct {
	// Sets override parameters: "name=value" each.
	Sets []string
	// Cwd is what a path given in Sets is relative to; "" for the current folder.
	Cwd string
	// Machine is the machine file: a path, "none", or "" for MachineFile in
	// MachineDir if it is there.
	Machine string
	// MachineDir is the folder beside the store; "" for Cwd.
	MachineDir string
	// Dir is what paths in the file are relative to; "" for the file's own folder.
	Dir string
}

// Loaded is a valid experiment and what is known about where it came from.
type Loaded struct {
	// Experiment is the effective experiment: the file with Sets applied and
	// defaults filled in. Paths are as written. Needs that a ${stage.*} or
	// ${service.*} reference implies are among the needs.
	Experiment schemas.Experiment
	// Source is the file as it was read.
	Source []byte
	// File is the file's name as it appears in messages.
	File string
	// Dir is the absolute folder that every relative path field of the
	// experiment is relative to. For a shipped experiment it is a folder of the
	// user's cache that holds the shipped files.
	Dir string
	// ParamPaths holds the absolute path of each path parameter's own value. One
	// that needs a machine value that is not known is absent.
	ParamPaths map[string]string
	// Machine is the machine file; its File is "" when there is none.
	Machine Machine
	// Positions says where each key of the file stands. Empty for JSON.
	Positions Positions

	setPaths map[string]bool // path parameters that Sets gave
	cwd      string
}

// ParamPath returns the absolute path a value of a path parameter stands for: a
// value from Sets is relative to Options.Cwd, any other to Dir. It serves values
// of the matrix too.
func (l *Loaded) ParamPath(name, written string) string {
	base := l.Dir
	if l.setPaths[name] {
		base = l.cwd
	}
	if filepath.IsAbs(written) {
		return filepath.Clean(written)
	}
	return filepath.Join(base, filepath.FromSlash(written))
}

// Load reads an experiment file, or a shipped experiment by name ("quickstart",
// "aegaeon/replay"; a file of that name comes first). Faults of the file come as
// *InvalidError; a missing file wraps fs.ErrNotExist.
func Load(path string, opts Options) (*Loaded, error) {
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		name, ok := shippedFile(path)
		if !ok {
			return nil, notFound(path)
		}
		return loadShipped(name, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("experiment %s: %w", path, err)
	}
	if filepath.Ext(path) == ".json" {
		return ParseJSON(path, data, opts)
	}
	return Parse(path, data, opts)
}

func notFound(path string) error {
	hint := ""
	if near := schemas.Nearest(path, Shipped()); near != "" {
		hint = fmt.Sprintf(" (did you mean the shipped %q?)", near)
	}
	return fmt.Errorf("experiment %s: %w%s", path, fs.ErrNotExist, hint)
}

// readFile reads a regular file of bounded size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file (%s)", info.Mode().Type())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFileBytes+1))
}

// Parse reads an experiment in TOML. Name is the file's name: it appears in
// messages, and its folder is Dir unless Options.Dir is set.
func Parse(name string, data []byte, opts Options) (*Loaded, error) {
	return parse(name, data, opts, decodeTOML, true)
}

// ParseJSON reads an effective experiment as it is archived. Reading what
// Experiment encodes to gives an equal Experiment: the services of the machine file
// are not taken, since it is known what served.
func ParseJSON(name string, data []byte, opts Options) (*Loaded, error) {
	return parse(name, data, opts, decodeJSON, false)
}

func parse(name string, data []byte, opts Options, decode func(*problems, []byte) map[string]any, machine bool) (*Loaded, error) {
	l, err := newLoaded(name, data, opts)
	if err != nil {
		return nil, err
	}
	p := &problems{file: name}
	tree := decode(p, data)
	if err := p.err(); err != nil {
		return nil, err
	}
	l.Positions = p.pos
	if machine {
		takeServices(tree, l.Machine)
	}
	c := &checker{problems: p, tree: tree, loaded: l, machine: &l.Machine}
	c.checkShape()
	c.applySets(opts.Sets)
	if len(p.list) == 0 {
		c.checkReferences()
		c.checkGraph()
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	if l.Experiment, err = c.experiment(); err != nil {
		return nil, fmt.Errorf("experiment %s: %w", name, err)
	}
	l.ParamPaths = c.paramPaths()
	return l, nil
}

func newLoaded(name string, data []byte, opts Options) (*Loaded, error) {
	l := &Loaded{Source: data, File: name, setPaths: map[string]bool{}}
	dir := opts.Dir
	if dir == "" {
		dir = filepath.Dir(name)
	}
	var err error
	if l.Dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("experiment %s: %w", name, err)
	}
	if l.cwd, err = filepath.Abs(opts.Cwd); err != nil {
		return nil, fmt.Errorf("experiment %s: %w", name, err)
	}
	l.Machine, err = findMachine(opts, l.cwd)
	return l, err
}
