package foundry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// MaxNodes bounds the nodes of one graph, far above what decode steps have.
const MaxNodes = 1 << 18

// Hash names a device binary. It is printed as the files of entry points have it.
type Hash uint64

// MarshalText writes 16 hex digits: as a JSON number it would lose bits in most readers.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

func (h Hash) String() string { return fmt.Sprintf("%016x", uint64(h)) }

// Address is one of device memory.
type Address uint64

// MarshalText writes it in hexadecimal, for the same reason.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func (a Address) String() string { return fmt.Sprintf("%#x", uint64(a)) }

// Kernel is a kernel that nodes of a graph launch.
type Kernel struct {
	Binary   Hash   `json:"binary_hash"`
	Function string `json:"function_name"`
	Nodes    int    `json:"nodes"`
}

// Memory is where a graph's allocations lie.
type Memory struct {
	Start    Address `json:"start_base_addr"`
	Allocs   int     `json:"allocs"`
	Frees    int     `json:"frees"`
	Reserves int     `json:"reserves"`
	// Low is the lowest address that was allocated and High the end of the highest;
	// both 0 without any.
	Low  Address `json:"low"`
	High Address `json:"high"`
	// wraps says that an allocation ends beyond the last address.
	wraps bool
}

// Graph is what is told of a graph by its JSON file.
type Graph struct {
	TopologyKey   string   `json:"topology_key"`
	Nodes         int      `json:"nodes"`
	Dependencies  int      `json:"dependencies"`
	Generators    int      `json:"generators"`
	OutputTensors int      `json:"output_tensors"`
	Kernels       []Kernel `json:"kernels"` // sorted
	Memory        Memory   `json:"memory"`
	// template says that it has dependencies, which other members of a group lack.
	template bool
	// any says that the document has nodes at all.
	any bool
}

// dependency joins two nodes by their ids.
type dependency struct{ from, to uint64 }

// graphReader gathers what a graph is checked with.
type graphReader struct {
	g       Graph
	ids     map[uint64]bool
	edges   []dependency
	kernels map[Kernel]int
}

// ReadGraph reads the JSON form of a graph.
func ReadGraph(b []byte) (Graph, error) {
	r := &graphReader{ids: map[uint64]bool{}, kernels: map[Kernel]int{}}
	if err := fields(b, nil, r.field); err != nil {
		return r.g, err
	}
	if !r.g.any {
		return r.g, errors.New("nodes is missing")
	}
	for _, e := range r.edges {
		if !r.ids[e.from] || !r.ids[e.to] {
			return r.g, fmt.Errorf("a dependency from node %d to node %d: there is no such node", e.from, e.to)
		}
	}
	for k, n := range r.kernels {
		k.Nodes = n
		r.g.Kernels = append(r.g.Kernels, k)
	}
	slices.SortFunc(r.g.Kernels, func(a, b Kernel) int {
		return cmp.Or(cmp.Compare(a.Binary, b.Binary), cmp.Compare(a.Function, b.Function))
	})
	return r.g, nil
}

func (r *graphReader) field(p *parser, key string) (err error) {
	switch key {
	case "topology_key":
		r.g.TopologyKey, err = p.text()
	case "nodes":
		r.g.any = true
		err = p.list(func() error { return r.node(p) })
	case "dependencies":
		r.g.template = true
		err = p.list(func() error { return r.dependency(p) })
	case "generators":
		err = p.list(func() error { r.g.Generators++; return p.skip() })
	case "allocator_events":
		r.g.Memory, err = readMemory(p)
	case "output_tensors":
		r.g.OutputTensors, err = readTensors(p)
	default:
		return p.skip()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func (r *graphReader) node(p *parser) error {
	if r.g.Nodes++; r.g.Nodes > MaxNodes {
		return p.wrong("more than %d nodes", MaxNodes)
	}
	var (
		id     uint64
		hasID  bool
		kind   string
		kernel Kernel
	)
	err := p.object(func(key string) (err error) {
		switch key {
		case "id":
			hasID = true
			id, err = p.whole()
		case "type":
			kind, err = p.text()
		case "params":
			if p.peek() != '{' {
				return p.skip()
			}
			kernel, err = readParams(p)
		default:
			err = p.skip()
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case !hasID || kind == "":
		return p.wrong("a node without id or type")
	case r.ids[id]:
		return p.wrong("node %d is there twice", id)
	case kind == "KernelNode" && kernel.Function == "":
		return p.wrong("node %d is a kernel without function_name", id)
	}
	r.ids[id] = true
	if kernel.Function != "" || kernel.Binary != 0 {
		r.kernels[kernel]++
	}
	return nil
}

// readParams reads which kernel a node launches. Its arguments are passed over: they are
// pointers into memory that there is none of here.
func readParams(p *parser) (Kernel, error) {
	var k Kernel
	err := p.object(func(key string) (err error) {
		switch key {
		case "function_name":
			k.Function, err = p.text()
		case "kernel_source_binary_hash":
			var n uint64
			n, err = p.whole()
			k.Binary = Hash(n)
		default:
			err = p.skip()
		}
		return err
	})
	return k, err
}

func (r *graphReader) dependency(p *parser) error {
	if r.g.Dependencies++; r.g.Dependencies > 4*MaxNodes {
		return p.wrong("more than %d dependencies", 4*MaxNodes)
	}
	var d dependency
	both := 0
	err := p.object(func(key string) (err error) {
		switch key {
		case "from":
			both++
			d.from, err = p.whole()
		case "to":
			both++
			d.to, err = p.whole()
		default:
			err = p.skip()
		}
		return err
	})
	if err == nil && both != 2 {
		return p.wrong("a dependency wants from and to")
	}
	r.edges = append(r.edges, d)
	return err
}

func readTensors(p *parser) (int, error) {
	n := 0
	err := p.object(func(key string) error {
		if key != "tensors" {
			return p.skip()
		}
		return p.list(func() error { n++; return p.skip() })
	})
	return n, err
}
