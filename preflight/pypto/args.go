package pypto

import (
	"slices"
	"strings"

	"assay/schemas"
)

// option is one of the command line.
type option struct {
	long   string
	flag   bool // takes no value
	repeat bool
	other  string // another spelling
	enum   []string
	whole  bool // a whole number, at least min
	min    int
}

func options() []option {
	return []option{
		{long: "--model"}, {long: "--served-model-name"}, {long: "--backend", enum: []string{"npu"}}, {long: "--platform"},
		{long: "--device", whole: true}, {long: "--devices"},
		{long: "--data-parallel-size", other: "--dp", whole: true, min: 1}, {long: "--tensor-parallel-size", other: "--tp", whole: true, min: 1},
		{long: "--expert-parallel-size", other: "--ep", whole: true, min: 1},
		{long: "--data-parallel-routing", enum: []string{"least_pending_tokens"}}, {long: "--dtype"}, {long: "--kv-cache-dtype"},
		{long: "--max-model-len", whole: true, min: 1}, {long: "--block-size", whole: true, min: 1}, {long: "--npu-memory-utilization"},
		{long: "--ring-dep-pool"}, {long: "--ring-task-window"}, {long: "--ring-heap"}, {long: "--prompt", repeat: true},
		{long: "--generate-config"}, {long: "--speculative-config"}, {long: "--num-speculative-tokens", whole: true},
		{long: "--host"}, {long: "--port", whole: true}, {long: "--max-num-seqs", whole: true, min: 1}, {long: "--max-num-batched-tokens", whole: true, min: 1},
		{long: "--long-prefill-token-threshold", whole: true, min: 1},
		{long: "--enable-prefix-caching", flag: true}, {long: "--no-enable-prefix-caching", flag: true},
		{long: "--enable-chunked-prefill", flag: true}, {long: "--no-enable-chunked-prefill", flag: true},
		{long: "--pd-role"}, {long: "--pd-config"}, {long: "--pd-node-id"},
		{long: "--profile", flag: true}, {long: "--profile-output"}, {long: "--profile-level"},
		{long: "--use-compile-cache", flag: true}, {long: "--no-use-compile-cache", flag: true}, {long: "--show-startup-logs", flag: true},
	}
}

// settings are the options of a command, the last one of each.
type settings map[string]string

func (s settings) has(name string) bool { _, ok := s[name]; return ok }

func (s settings) or(name, otherwise string) string {
	if v, ok := s[name]; ok {
		return v
	}
	return otherwise
}

// parse reads the options of a command line. What comes before the first option is
// the program, its wrappers and their arguments.
func (c *checker) parse(argv []string, help string) settings {
	known := map[string]option{}
	var names []string
	for _, o := range options() {
		for _, name := range []string{o.long, o.other} {
			if name != "" {
				known[name] = o
				names = append(names, name)
			}
		}
	}
	out := settings{}
	start := slices.IndexFunc(argv, func(a string) bool { return a == "pypto-serving" || strings.HasSuffix(a, "/pypto-serving") })
	for i := start + 1; i < len(argv); i++ {
		name, value, given := strings.Cut(argv[i], "=")
		if !strings.HasPrefix(name, "-") {
			continue
		}
		o, ok := known[name]
		if !ok {
			c.unknownOption(name, names, help)
			continue
		}
		switch {
		case o.flag && given:
			c.fail("pypto.option", "remove the value", "option %s takes no value", name)
			continue
		case !o.flag && !given && (i+1 == len(argv) || slices.Contains(names, argv[i+1])):
			c.fail("pypto.option", "give it a value", "option %s has no value", name)
			continue
		case !o.flag && !given:
			i++
			value = argv[i]
		}
		if out.has(o.long) && !o.repeat && out[o.long] != value {
			c.warn("pypto.option", "give it once", "option %s is given twice: the last one counts", name)
		}
		c.one(o, value)
		out[o.long] = value
	}
	return out
}

// unknownOption is an error where the program's own help does not list it either.
func (c *checker) unknownOption(name string, names []string, help string) {
	near := schemas.Nearest(name, names)
	if near != "" {
		near = "; " + near + " is near"
	}
	switch {
	case help != "" && slices.Contains(strings.FieldsFunc(help, func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]()=|", r) }), name):
		return
	case help != "" || near != "":
		c.fail("pypto.option", "correct it: the program exits with status 2", "there is no option %.60s%s", name, near)
	default:
		c.unknown("pypto.option", "compare with the program's --help: versions differ", "option %.60s is not known here", name)
	}
}
