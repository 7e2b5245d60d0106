package measure

import (
	"strings"

	"assay/pipeline"
	"assay/schemas"
)

// settings of a serving engine that results depend on, and the flags of the
// usual servers that set them.
var engineSettings = []struct {
	name  string
	flags []string
}{
	{"max_model_len", []string{"--max-model-len", "--context-length"}},
	{"max_num_seqs", []string{"--max-num-seqs", "--max-running-requests"}},
	{"max_num_batched_tokens", []string{"--max-num-batched-tokens", "--max-prefill-tokens"}},
	{"chunked_prefill", []string{"--enable-chunked-prefill", "--no-enable-chunked-prefill", "--chunked-prefill-size"}},
	{"speculative_decoding", []string{"--speculative-config", "--speculative-model", "--num-speculative-tokens", "--speculative-algorithm"}},
	{"prefix_caching", []string{"--enable-prefix-caching", "--no-enable-prefix-caching", "--disable-radix-cache"}},
	{"data_type", []string{"--dtype", "--quantization"}},
	{"parallelism", []string{"--tensor-parallel-size", "--tp-size", "--tp", "--pipeline-parallel-size", "--data-parallel-size", "--dp-size"}},
	{"profiling", []string{"--profile", "--enable-profiling"}},
	{"compile_cache", []string{"--compilation-config", "--enforce-eager", "--enable-torch-compile"}},
	{"prepacked_weights", []string{"--load-format"}},
}

// serviceConditions tells what is known of the service: its engine, its
// configuration as written, and the settings that its command names. Its URL and
// the machine's own values are not part of it.
func serviceConditions(c *conditionList, task *pipeline.Task) {
	svc := task.Experiment.Service[task.Service.Name]
	set := schemas.Settings(svc.Config)
	argv := set.List("command")
	c.add("engine", task.Service.Engine)
	c.either("engine_version", emulatedOnly(task, "the one built into this client"), "the service does not tell its version")
	c.either("engine_configuration", configuration(svc), "the service was attached to: its configuration is not known here")
	if len(argv) > 0 {
		c.add("command_line", argv)
	} else {
		c.either("command_line", emulatedOnly(task, "none: built into this client"), "the service was attached to, not started")
	}
	c.either("device_ids", devices(svc), "the service names no devices")
	for _, s := range engineSettings {
		engineCondition(c, task, s.name, flagsOf(argv, s.flags))
	}
	for _, name := range []string{"driver_version", "framework_version"} {
		c.either(name, emulatedOnly(task, "none: emulated"), "the service does not tell")
	}
	c.add("emulated", task.Service.Emulated)
}

func engineCondition(c *conditionList, task *pipeline.Task, name string, flags []string) {
	switch {
	case name == "profiling" && schemas.Settings(task.Config).Table("observe").Bool("profile"):
		c.add(name, "on while measured, by /start_profile and /stop_profile: the numbers are diagnostic")
	case len(flags) > 0:
		c.add(name, strings.Join(flags, " "))
	case task.Service.Emulated && name == "max_model_len":
		c.add(name, modelLengths(task))
	case task.Service.Emulated:
		c.add(name, "none: the emulated engine has no such thing")
	default:
		c.unknown(name, "the service does not tell, and no flag of its command sets it")
	}
}

// modelLengths are the limits of the emulated engine's models, as written.
func modelLengths(task *pipeline.Task) map[string]any {
	fields, _ := schemas.EngineFields(task.Service.Engine)
	svc := task.Experiment.Service[task.Service.Name]
	out := map[string]any{}
	for _, m := range schemas.Settings(schemas.ApplyDefaults(fields, svc.Config)).Tables("models") {
		out[m.Text("name")] = m["max_model_len"]
	}
	return out
}

func emulatedOnly(task *pipeline.Task, value string) any {
	if task.Service.Emulated {
		return value
	}
	return nil
}

// configuration is the service's table as written, without what names this
// machine's places and without the environment, which may refer to secrets.
func configuration(svc schemas.Service) any {
	out := map[string]any{}
	for k, v := range svc.Config {
		switch k {
		case "command", "url", "port", "cwd", "env":
		default:
			out[k] = v
		}
	}
	if _, attached := svc.Config["url"]; attached || len(out) == 0 {
		return nil
	}
	out["restart"] = svc.Restart
	return out
}

func devices(svc schemas.Service) any {
	if len(svc.Devices) == 0 {
		return nil
	}
	return svc.Devices
}

// flagsOf picks the flags, with their values, out of a command line.
func flagsOf(argv, flags []string) []string {
	var out []string
	for i, a := range argv {
		name, _, joined := strings.Cut(a, "=")
		for _, f := range flags {
			if name != f {
				continue
			}
			if !joined && i+1 < len(argv) && !strings.HasPrefix(argv[i+1], "-") {
				a += " " + argv[i+1]
			}
			out = append(out, a)
		}
	}
	return out
}
