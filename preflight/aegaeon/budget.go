package aegaeon

import (
	"fmt"
	"slices"
	"strconv"

	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

const (
	gib = 1 << 30
	// blockTokens is how many tokens the keys and values of a block belong to.
	blockTokens = 16
	// elementBytes are those of bfloat16, which the engine loads everything as.
	elementBytes = 2
	// arenaRest is what the engine leaves of a GPU beside its arena, and margin what
	// work space takes that its estimate leaves out.
	arenaRest = 8 * gib
	margin    = 2 * gib
)

// Model is what is known of a model from the headers of its checkpoint.
type Model struct {
	Name       string
	Parameters int64 // 0: not known
	// KVBytesPerToken are those of all layers; 0: not known.
	KVBytesPerToken int64
	ContextLength   int64 // 0: not known
}

// KVBytes are the bytes of keys and values of a token.
func KVBytes(layers, kvHeads, headDim int64) int64 {
	return layers * 2 * kvHeads * headDim * elementBytes
}

// Host is what is known of the host that the engine will run on; nil and 0 are not
// known.
type Host struct {
	MemAvailable *int64 // bytes
	ShmFree      *int64 // bytes, in the folder of AEGAEON_SHM_DIR
	Memlock      *int64 // bytes, the soft limit; -1: none
	CPUs         int
	GPUs         int // visible ones
	GPUMemory    int64
	GPUName      string
	Nodes        int // that the service may run on
}

// Load is the worst that a workload asks for at once.
type Load struct {
	Concurrency int // requests at once; 0: not known
	Sequence    int // tokens of the longest request, prompt and answer; 0: not known
}

// Budgets holds a configuration against models, host and load. What is not known of
// the host is unknown; of models and load it is left out.
func Budgets(subject, file string, config aegaeon.Config, models []Model, host Host, load Load) []schemas.Finding {
	c := &checker{subject: subject, file: file}
	b := budget{checker: c, server: config.Server, models: models, devices: config.Devices}
	b.kv = float64(config.Server.CPUNumSlabs) * float64(config.Server.CPUSlabSizeBytes)
	b.cache = b.cacheBytes()
	b.memory(host)
	b.weights(config)
	b.gpu(host)
	b.workers(host)
	b.load(load)
	return c.findings
}

// Shapes is what Budgets says of models, load and graphs, for a service that uses
// nothing of a host.
func Shapes(subject, file string, config aegaeon.Config, models []Model, load Load) []schemas.Finding {
	b := budget{checker: &checker{subject: subject, file: file}, server: config.Server, models: models}
	for _, m := range models {
		b.context(config, m)
	}
	b.kv = float64(config.Server.CPUNumSlabs) * float64(config.Server.CPUSlabSizeBytes)
	b.load(load)
	return b.findings
}

type budget struct {
	*checker
	server    aegaeon.Server
	models    []Model
	devices   []aegaeon.Device
	kv, cache float64 // bytes on the host
}

func fixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

func size(bytes float64) string { return fixed(bytes/gib, 1) + " GiB" }

func (b *budget) startup(name string) bool {
	return b.server.StartupModels == nil || slices.Contains(*b.server.StartupModels, name)
}

// cacheBytes is the size of the cache of weights, which follows from what start-up
// loads unless it is set.
func (b *budget) cacheBytes() float64 {
	if b.server.ModelCacheSizeGB > 0 {
		return b.server.ModelCacheSizeGB * gib
	}
	sum := 0.0
	for _, m := range b.models {
		if b.startup(m.Name) {
			sum += float64(m.Parameters) * elementBytes * 1.2
		}
	}
	if sum == 0 {
		return 20 * gib
	}
	return sum
}

// holds compares what is needed with what there is.
func (b *budget) holds(id, what, remedy string, need float64, have *int64, worst schemas.Severity) {
	switch {
	case have == nil:
		b.add(id, schemas.SeverityUnknown, "record the facts of the host that it will run on", "%s is not known; %s are needed", what, size(need))
	case *have >= 0 && need > float64(*have):
		b.add(id, worst, remedy, "%s is %s; %s are needed: %s for keys and values, %s for weights", what, size(float64(*have)), size(need), size(b.kv), size(b.cache))
	default:
		b.add(id, schemas.SeverityPass, "", "%s suffices for %s", what, size(need))
	}
}

func (b *budget) memory(host Host) {
	const less = "lower cpu_num_slabs, cpu_slab_size_bytes or model_cache_size_gb"
	b.holds("aegaeon.memory", "the host's free memory", less, b.kv+b.cache, host.MemAvailable, schemas.SeverityError)
	b.holds("aegaeon.shm", "free shared memory", less+", or give the container a larger /dev/shm", b.kv+b.cache, host.ShmFree, schemas.SeverityError)
	b.holds("aegaeon.memlock", "the limit of locked memory", "raise it (ulimit -l unlimited) before Ray is started", b.kv+b.cache, host.Memlock, schemas.SeverityWarning)
}

func (b *budget) weights(config aegaeon.Config) {
	var all, start, largest float64
	name := ""
	for _, m := range b.models {
		bytes := float64(m.Parameters) * elementBytes
		all += bytes
		if b.startup(m.Name) {
			start += bytes
		}
		if bytes > largest {
			largest, name = bytes, m.Name
		}
		b.context(config, m)
	}
	const more = "raise model_cache_size_gb"
	switch {
	case all == 0:
	case largest > b.cache:
		b.fail("aegaeon.model-cache", more, "the weights of %s take %s, the cache has %s", name, size(largest), size(b.cache))
	case start > b.cache:
		b.fail("aegaeon.model-cache", more+", or name fewer startup_models", "the weights of the models that start-up loads take %s, the cache has %s", size(start), size(b.cache))
	case all > b.cache:
		b.warn("aegaeon.model-cache", more+" where every switch is to find its weights on the host", "the weights of all models take %s, the cache has %s: some are evicted for others", size(all), size(b.cache))
	default:
		b.add("aegaeon.model-cache", schemas.SeverityPass, "", "the weights of all models fit the cache: %s of %s", size(all), size(b.cache))
	}
}

// context compares a model's longest sequence with what its checkpoint allows.
func (b *budget) context(config aegaeon.Config, m Model) {
	i := slices.IndexFunc(config.Models, func(e aegaeon.Entry) bool { return e.Name == m.Name })
	if i >= 0 && config.Models[i].MaxModelLen != nil && m.ContextLength > 0 && int64(*config.Models[i].MaxModelLen) > m.ContextLength {
		b.fail("aegaeon.context", "lower max_model_len", "%s: max_model_len is %d, its checkpoint allows %d tokens", m.Name, *config.Models[i].MaxModelLen, m.ContextLength)
	}
}

// capacity is the memory of a GPU: what the configuration says, or the host.
func (b *budget) capacity(host Host) float64 {
	if len(b.devices) == 0 {
		return float64(host.GPUMemory)
	}
	said := b.devices[0].Memory * gib
	if host.GPUMemory > 0 && said > float64(host.GPUMemory) {
		b.fail("aegaeon.gpu-memory", "write what the GPU has, in GiB", "devices[0].memory is %s, the GPU has %s", size(said), size(float64(host.GPUMemory)))
	}
	return said
}

// gpu sets the weights of two models, the active one and the one that is fetched
// ahead, against a GPU's memory.
func (b *budget) gpu(host Host) {
	var bytes []float64
	for _, m := range b.models {
		if m.Parameters > 0 {
			bytes = append(bytes, float64(m.Parameters)*elementBytes)
		}
	}
	capacity := b.capacity(host)
	if len(bytes) == 0 || len(bytes) < len(b.models) {
		return
	}
	if capacity == 0 {
		b.add("aegaeon.gpu-memory", schemas.SeverityUnknown, "list the device, or record the facts of the host that it will run on", "the memory of a GPU is not known")
		return
	}
	slices.SortFunc(bytes, func(x, y float64) int { return -cmpFloat(x, y) })
	weights := bytes[0]
	if len(bytes) > 1 {
		weights += bytes[1]
	}
	kv := capacity*b.server.MemoryUtilization - weights
	rest := capacity - weights - float64(b.scratch())
	switch {
	case kv <= 0:
		b.fail("aegaeon.gpu-memory", "use smaller models, a larger GPU, or a higher memory_utilization", "the two largest models take %s of the %s that a GPU with %s may use: nothing is left for keys and values",
			size(weights), size(capacity*b.server.MemoryUtilization), size(capacity))
		return
	case weights > capacity-arenaRest || rest < margin:
		b.warn("aegaeon.gpu-headroom", "use smaller models or a larger GPU", "the two largest models take %s of a GPU with %s; work space is not part of the engine's estimate", size(weights), size(capacity))
	}
	b.add("aegaeon.gpu-memory", schemas.SeverityPass, "", "%s of a GPU are left for keys and values", size(kv))
}

func (b *budget) scratch() uint64 {
	if b.server.CUDAGraph.Mode == "off" {
		return 0
	}
	return uint64(b.server.CUDAGraph.ScratchSizeBytes)
}

func cmpFloat(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// workers counts engines against processors, GPUs and nodes.
func (b *budget) workers(host Host) {
	n := b.server.NumEngines
	if n == 0 {
		n = *b.server.NumPrefillEngines + *b.server.NumDecodeEngines
	}
	b.count("aegaeon.cpus", "processors", "lower worker_num_cpus; the default is 16 for each worker", float64(n)*float64(b.server.WorkerNumCPUs), host.CPUs)
	b.count("aegaeon.gpus", "visible GPUs", "configure fewer engines, or make more GPUs visible", float64(n), host.GPUs)
	switch nodes := b.server.Nodes; {
	case nodes > 1 && host.Nodes > 0 && host.Nodes < nodes:
		b.fail("aegaeon.nodes", "set nnodes to the number of hosts: a host with several GPUs is one", "nnodes is %d, there are %d hosts", nodes, host.Nodes)
	case nodes > 1 && (nodes == n || nodes == host.GPUs):
		b.warn("aegaeon.nodes", "set nnodes to the number of hosts: a host with several GPUs is one", "nnodes is %d, as many as engines or GPUs of a node", nodes)
	}
}

func (b *budget) count(id, what, remedy string, need float64, have int) {
	switch {
	case have == 0:
		b.add(id, schemas.SeverityUnknown, "record the facts of the host that it will run on", "the number of %s is not known; %.0f are needed", what, need)
	case need > float64(have):
		b.fail(id, remedy, "there are %d %s, the engines of a node want %.0f: they stay pending", have, what, need)
	default:
		b.add(id, schemas.SeverityPass, "", "%d %s suffice for %.0f", have, what, need)
	}
}

// load sets what a workload asks for at once against slabs and graphs.
func (b *budget) load(load Load) {
	if load.Concurrency > 0 && load.Sequence > 0 {
		perToken, name := int64(0), ""
		for _, m := range b.models {
			if m.KVBytesPerToken > perToken {
				perToken, name = m.KVBytesPerToken, m.Name
			}
		}
		blocks := (int64(load.Sequence) + blockTokens - 1) / blockTokens
		peak := float64(load.Concurrency) * float64(blocks) * blockTokens * float64(perToken)
		what := fmt.Sprintf("%d requests of %d tokens to %s", load.Concurrency, load.Sequence, name)
		if perToken > 0 && peak > b.kv {
			b.fail("aegaeon.kv-slabs", "raise cpu_num_slabs, or send fewer or shorter requests at once", "%s have %s of keys and values, the slabs %s", what, size(peak), size(b.kv))
		} else if perToken > 0 {
			b.add("aegaeon.kv-slabs", schemas.SeverityPass, "", "%s fit the slabs: %s of %s", what, size(peak), size(b.kv))
		}
	}
	g := b.server.CUDAGraph
	if g.Mode == "off" || len(g.SeqLenBuckets) != 1 || len(g.BatchSizes) == 0 {
		return
	}
	if load.Sequence > g.SeqLenBuckets[0] {
		b.fail("aegaeon.graph-shapes", "save graphs with a longer seq_len_buckets, or send shorter requests", "the longest request has %d tokens, graphs serve %d: it runs without them, silently", load.Sequence, g.SeqLenBuckets[0])
	}
	if most := slices.Max(g.BatchSizes); load.Concurrency > most {
		b.warn("aegaeon.graph-shapes", "list the batch sizes that will be met", "up to %d requests run at once, graphs serve batches of at most %d: larger ones run without, silently", load.Concurrency, most)
	}
}
