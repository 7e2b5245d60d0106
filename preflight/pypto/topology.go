package pypto

import (
	"slices"
	"strconv"
	"strings"

	"assay/schemas"
)

// family is what a model's architecture belongs to, as far as the engine serves it.
type family string

const (
	qwen     family = "Qwen"
	deepSeek family = "DeepSeek V4"
)

func familyOf(architecture string) family {
	a := strings.ToLower(architecture)
	switch {
	case slices.Contains([]string{"qwen2forcausallm", "qwen3forcausallm", "qwen2model", "qwen3model"}, a):
		return qwen
	case strings.HasPrefix(strings.ReplaceAll(a, "_", ""), "deepseekv4"):
		return deepSeek
	}
	return ""
}

// model checks the checkpoint against the family.
func (c *checker) model(set settings, f Facts, method string) {
	is := familyOf(f.Architecture)
	switch {
	case f.Architecture == "":
	case is == "":
		c.fail("pypto.architecture", "use a model that the engine serves: Qwen2, Qwen3 or DeepSeek V4", "architecture %.60q is none that the engine serves", f.Architecture)
	case is == deepSeek && f.Quantization != "compressed-tensors":
		c.fail("pypto.architecture", "convert the checkpoint to compressed-tensors", "DeepSeek V4 wants quantization compressed-tensors, config.json names %.40q", f.Quantization)
	case is == deepSeek && f.Index != nil && !*f.Index:
		c.fail("pypto.architecture", "fetch model.safetensors.index.json", "DeepSeek V4 wants an index of its shards")
	case is == qwen && f.Shards > 1 && f.Index != nil && !*f.Index:
		c.fail("pypto.architecture", "fetch model.safetensors.index.json", "%d weight files without an index are refused", f.Shards)
	}
	if is == qwen && method != "" {
		c.fail("pypto.speculative", "leave --speculative-config out", "method %s is for DeepSeek V4, not for %s", method, f.Architecture)
	}
	if n, ok := set.number("--max-model-len", 1024); ok && f.ContextLength > 0 && int64(n) > f.ContextLength {
		c.fail("pypto.context", "lower --max-model-len", "--max-model-len is %d, the checkpoint allows %d tokens", n, f.ContextLength)
	}
}

// topology checks sizes of parallel groups against family and devices.
func (c *checker) topology(set settings, f Facts, method string) {
	dp, okDP := set.number("--data-parallel-size", 1)
	tp, okTP := set.number("--tensor-parallel-size", 1)
	ep, okEP := set.number("--expert-parallel-size", 1)
	block, okBlock := set.number("--block-size", 128)
	devices, okDevices := c.devices(set, f)
	if !okDP || !okTP || !okEP || !okBlock {
		return // filled in later, or has a finding of its own
	}
	const remedy = "give the sizes that the family wants"
	count := func(want int) {
		if okDevices && devices != want {
			c.fail("pypto.topology", "list that many devices with --devices", "%d devices, the sizes want %d", devices, want)
		}
	}
	switch is := familyOf(f.Architecture); {
	case method == "dspark":
		if tp != 4 || (ep != 8 && ep != 16) || dp != ep/4 || block != 32 {
			c.fail("pypto.topology", remedy, "dspark wants --tp 4, --ep 8 or 16, --dp a quarter of it and --block-size 32; have tp %d, ep %d, dp %d, block %d", tp, ep, dp, block)
			return
		}
		count(ep)
	case is == deepSeek || method == "mtp":
		if dp != 8 || ep != 8 || tp != 1 || block != 128 {
			c.fail("pypto.topology", remedy, "DeepSeek V4 wants --dp 8, --ep 8, --tp 1 and --block-size 128; have dp %d, ep %d, tp %d, block %d", dp, ep, tp, block)
			return
		}
		count(8)
		if n, ok := set.number("--long-prefill-token-threshold", 2048); ok && !slices.Contains([]int{1024, 2048, 4096, 8192}, n) {
			c.fail("pypto.topology", "write 1024, 2048, 4096 or 8192", "--long-prefill-token-threshold is %d: DeepSeek V4 takes 1024, 2048, 4096 and 8192 only", n)
		}
	case is == qwen:
		count(dp * tp)
	}
}

// devices counts those of the command line; ok is false where that is not known.
func (c *checker) devices(set settings, f Facts) (count int, ok bool) {
	text := set.or("--devices", set.or("--device", "0"))
	if placeholder(text) {
		return 0, false
	}
	if set.has("--devices") && set.has("--device") {
		c.warn("pypto.devices", "remove --device", "--device and --devices are both given")
	}
	seen := map[int]bool{}
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		switch {
		case err != nil || n < 0:
			c.fail("pypto.devices", "list numbers of devices, separated by commas", "%.40q is no number of a device", part)
			return 0, false
		case seen[n]:
			c.fail("pypto.devices", "list it once", "device %d is listed twice", n)
		case f.Devices != nil && !slices.Contains(f.Devices, n):
			c.fail("pypto.devices", "list devices that the host has", "the host has no device %d", n)
		}
		seen[n] = true
	}
	if v := f.Env["ASCEND_RT_VISIBLE_DEVICES"]; v != "" {
		if visible := len(strings.Split(v, ",")); visible < len(seen) {
			c.fail("pypto.devices", "make them visible, or list fewer", "%d devices are listed, ASCEND_RT_VISIBLE_DEVICES shows %d", len(seen), visible)
		}
	}
	return len(seen), true
}

// load sets what a workload asks for against the limits of the service.
func (c *checker) load(set settings, load Load) {
	if n, ok := set.number("--max-model-len", 1024); ok && load.Sequence > n {
		said := ""
		if !set.has("--max-model-len") {
			said = ", its default"
		}
		c.fail("pypto.max-model-len", "raise --max-model-len, or send shorter requests", "the longest request has %d tokens, --max-model-len is %d%s", load.Sequence, n, said)
	}
	if n, ok := set.number("--max-num-seqs", 16); ok && load.Concurrency > n {
		c.warn("pypto.max-num-seqs", "raise --max-num-seqs, or count the wait", "up to %d requests run at once, --max-num-seqs is %d: the rest queue", load.Concurrency, n)
	}
	if !set.has("--no-enable-prefix-caching") {
		c.add("pypto.prefix-cache", schemas.SeverityInfo, "pass --no-enable-prefix-caching where prompts repeat", "prefix caching is on: a prompt that was sent before, in the warm-up too, is not computed again")
	}
}
