package foundry

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const graphDoc = `{"topology_key":"k","common_kernel_node_attrs":{"x":1},
"nodes":[{"id":0,"type":"KernelNode","params":{"function_name":"f","kernel_source_binary_hash":18446744073709551557,"kernelParams":[{"index":0,"offset":0,"size":8,"value_hex":"00"}]}},
{"id":1,"type":"KernelNode","params":{"function_name":"f","kernel_source_binary_hash":18446744073709551557}},{"id":2,"type":"EventWaitNode","params":null}],
"dependencies":[{"from":0,"to":1},{"from":1,"to":2}],"generators":[{"id":1,"seed":2,"wholegraph_increment":3}],
"allocator_events":{"start_base_addr":70368744177664,"events":[{"type":"alloc","size":512,"ptr":70368744179712,"alignment":512},{"type":"alloc","size":512,"ptr":70368744178176},
{"type":"free","ptr":70368744178176},{"type":"reserve","size":4096,"ptr":9007199254740993}]},"output_tensors":{"type":"single","tensors":[{"data_ptr":1}]}}`

func TestReadGraph(t *testing.T) {
	got, err := ReadGraph([]byte(graphDoc))
	want := Graph{TopologyKey: "k", Nodes: 3, Dependencies: 2, Generators: 1, OutputTensors: 1, Kernels: []Kernel{{Binary: 18446744073709551557, Function: "f", Nodes: 2}},
		Memory: Memory{Start: 0x400000000000, Allocs: 2, Frees: 1, Reserves: 1, Low: 0x400000000200, High: 0x400000000a00}, template: true, any: true}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Graph{}, Memory{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if h := got.Kernels[0].Binary.String(); h != "ffffffffffffffc5" {
		t.Errorf("hash %s", h)
	}
	for change, want := range map[string]string{
		`"nodes":`: "nodes is missing", `"id":2,`: "without id", `"type":"EventWaitNode"`: "without id or type", `"function_name":"f",`: "kernel without function_name", `"from":0,`: "wants from and to",
		`"start_base_addr":70368744177664,`: "start_base_addr is missing",
	} {
		name, _, _ := strings.Cut(strings.TrimPrefix(change, `"`), `"`)
		doc := strings.Replace(graphDoc, change, strings.Replace(change, name, "was_"+name, 1), 1)
		if _, err := ReadGraph([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: want %q, got %v", change, want, err)
		}
	}
}

func TestOutside(t *testing.T) {
	const base, size = 1 << 46, 1 << 30
	event := func(ptr, n uint64) Memory {
		m := Memory{Start: base}
		m.alloc(ptr, n)
		return m
	}
	for want, m := range map[string]Memory{
		"":                             event(base, size),
		"start_base_addr 0x1 is":       {Start: 1},
		"an allocation at 0x3fffffff":  event(base-1, 1),
		"an allocation at 0x40004000":  event(base+size, 0),
		"reaches to 0x400040000001":    event(base+size-1, 2),
		"reaches beyond the last addr": event(base+1, 1<<64-1),
	} {
		if got := m.outside(base, size); !strings.Contains(got, want) || (want == "" && got != "") {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}

func TestNames(t *testing.T) {
	n, ok := ParseGraphName("graph_3_FULL_DECODE_ONLY_t8_rN_UX_pc12")
	if !ok || n.Index != 3 || n.Mode != "FULL_DECODE_ONLY" || n.Tokens != 8 || n.Requests != nil || !n.Uniform || n.LoRA || *n.Piecewise != 12 || n.Batch() != 8 {
		t.Errorf("%+v %v", n, ok)
	}
	for _, s := range []string{"", "graph_0", "graph_0_FULL_t1_r1_UX_pcN.json", "graph_-1_FULL_t1_r1_UX_pcN", "graph_0_FULL_t99999999999_r1_UX_pcN", "x_graph_0_FULL_t1_r1_UX_pcN"} {
		if got, ok := ParseGraphName(s); ok {
			t.Errorf("%q is taken for %+v", s, got)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.IntRange(0, 1e9-1)
		n := GraphName{Index: some.Draw(rt, "index"), Mode: rapid.StringMatching(`[A-Z]{1,9}(_[A-Z]{1,9})?`).Draw(rt, "mode"), Tokens: some.Draw(rt, "tokens"), Requests: rapid.Ptr(some, true).Draw(rt, "requests"),
			Uniform: rapid.Bool().Draw(rt, "uniform"), LoRA: rapid.Bool().Draw(rt, "lora"), Piecewise: rapid.Ptr(some, true).Draw(rt, "piecewise")}
		got, ok := ParseGraphName(n.String())
		if diff := cmp.Diff(n, got); !ok || diff != "" {
			rt.Errorf("%s: %s", n, diff)
		}
	})
	for name, want := range map[string]int{"a/rank_0": 0, "rank_12": 12, "rank_": -1, "rank_01": -1, "rank_-1": -1, "a": -1, "rank_99999999999999999999": -1} {
		if n, ok := rankOf(name); ok != (want >= 0) || (ok && n != want) {
			t.Errorf("%s: %d %v", name, n, ok)
		}
	}
	for _, model := range []string{"..", ".", "a/../b", "org/a b"} { // stays in its folder
		if f := Folder(model); strings.Contains(f, "/") || strings.Trim(f, ".") == "" {
			t.Errorf("model %q in %q", model, f)
		}
	}
}

// image makes one entry of packed images: in segments when there are several parts.
func image(hash uint64, parts ...string) []byte {
	out := binary.LittleEndian.AppendUint64(nil, hash)
	if len(parts) == 1 && parts[0] != "" {
		return append(binary.LittleEndian.AppendUint64(out, uint64(len(parts[0]))), parts[0]...)
	}
	out = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(out, 0), uint64(len(parts)))
	for _, p := range parts {
		out = append(binary.LittleEndian.AppendUint64(out, uint64(len(p))), p...)
	}
	return out
}

func readImages(b []byte) ([]Image, error) { return ReadImages(bytes.NewReader(b), int64(len(b))) }

func TestReadImages(t *testing.T) {
	b := slices.Concat(image(1<<63, "abc"), image(2, "de", "", "fgh"), image(3, ""))
	got, err := readImages(b)
	want := []Image{{Hash: 1 << 63, Bytes: 3}, {Hash: 2, Bytes: 5, Segments: 3}, {Hash: 3, Segments: 1}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	whole := map[int]bool{0: true, 19: true, 19 + 53: true, len(b): true}
	for n := range len(b) { // cut anywhere but between two
		if _, err := readImages(b[:n]); (err == nil) != whole[n] {
			t.Errorf("cut to %d of %d bytes: %v", n, len(b), err)
		}
	}
	empty := image(1, make([]string, MaxSegments+1)...)
	var failed error
	if n := allocated(func() { _, failed = readImages(empty) }); failed == nil || n > 1<<20 {
		t.Errorf("%d bytes for %d segments of nothing: %v", n, MaxSegments+1, failed)
	}
	if _, err := readImages(bytes.Repeat(image(1, "x"), MaxBinaries+1)); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("too many images: %v", err)
	}
}

func TestReadEntries(t *testing.T) {
	const doc = "00000000000000ff\n_Z1fILi3ELi4EEvv,filename=a,b.cubin,numJitOptions=1,binary_flags=2,num_segments=3\n2\nf\ng\n---\n8000000000000000\nh,binary_flags=0\n0\n---\n"
	got, err := ReadEntries([]byte(doc))
	want := []Binary{{Hash: 255, Base: "_Z1fILi3ELi4EEvv", Segments: 3, Functions: []string{"f", "g"}}, {Hash: 1 << 63, Base: "h"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for from, to := range map[string]string{
		"00000000000000ff": "ff", "binary_flags=2": "flags=2", "binary_flags=0": "binary_flags=x", "num_segments=3": "num_segments=-3", "\n2\n": "\n-2\n", "\n0\n": "\n18446744073709551615\n",
		"g\n---": "g\n--", "f\ng\n": "f\n", "f\n": "\n", "---\n8": "8",
	} {
		if _, err := ReadEntries([]byte(strings.Replace(doc, from, to, 1))); err == nil || !strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%q for %q: %v", to, from, err)
		}
	}
	lines := []byte(strings.Repeat("\n", 8<<20))
	var failed error
	if n := allocated(func() { _, failed = ReadEntries(lines) }); failed == nil || n > 1<<20 {
		t.Errorf("%d bytes for lines of nothing: %v", n, failed)
	}
	many := fmt.Appendf(nil, "00000000000000ff\nf,binary_flags=2\n%d\n%s---\n", MaxEntryPoints+1, strings.Repeat("f\n", MaxEntryPoints+1))
	if _, err := ReadEntries(many); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("too many entry points: %v", err)
	}
}

func TestNotes(t *testing.T) {
	groups, err := ReadManifest([]byte(`{"version":1,"topology_groups":[{"topology_key":"k","template":"a","members":["a","b"]}]}`))
	if diff := cmp.Diff([]Group{{TopologyKey: "k", Template: "a", Members: []string{"a", "b"}}}, groups); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for _, doc := range []string{`[]`, `{}`, `{"topology_groups":{}}`, `{"topology_groups":[{"template":"a"}]}`, `{"topology_groups":[{"members":["a"]}]}`, `{"topology_groups":[]} x`} {
		if _, err := ReadManifest([]byte(doc)); err == nil {
			t.Errorf("manifest %s is taken", doc)
		}
	}
	if n, err := ReadOffset([]byte(`{"final_alloc_offset":9007199254740993}`)); err != nil || n != 1<<53+1 {
		t.Errorf("%d, %v", n, err)
	}
	for _, doc := range []string{`{}`, `1`, `{"final_alloc_offset":-1}`, `{"final_alloc_offset":1,"final_alloc_offset":2}`} {
		if _, err := ReadOffset([]byte(doc)); err == nil {
			t.Errorf("offset %s is taken", doc)
		}
	}
	s, err := ReadState([]byte(`{"vllm_version":"0.1","cuda_version":null,"gpu_name":"A100","gpu_total_memory":42949672960,"available_gpu_memory":[1],"final_alloc_offset":7}`))
	if err != nil || s.VLLMVersion != "0.1" || s.CUDAVersion != "" || s.GPUName != "A100" || s.GPUMemoryBytes != 40<<30 || *s.FinalAllocOffset != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	const catalog = `{"abi":1,"model":"m","binding":"w","batch_sizes":[1,2],"seq_len_bucket":8,"base_address":1,"region_size_bytes":2,"scratch_size_bytes":3,"files":[{"path":"a","size":1,"sha256":"00"}]}`
	c, err := ReadCatalog([]byte(catalog))
	want := Catalog{ABI: 1, Spec: Spec{Model: "m", Binding: "w", BatchSizes: []int{1, 2}, SeqLenBucket: 8, BaseAddress: 1, RegionSizeBytes: 2, ScratchSizeBytes: 3}, Files: []File{{"a", 1, "00"}}}
	if diff := cmp.Diff(want, c); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for from, to := range map[string]string{`"abi":1`: `"abi":"1"`, `"model":"m"`: `"model":""`, `[1,2]`: `[0]`, `"files"`: `"list"`, `"size":1`: `"size":9223372036854775808`, `"seq_len_bucket":8`: `"seq_len_bucket":4294967296`} {
		if _, err := ReadCatalog([]byte(strings.Replace(catalog, from, to, 1))); err == nil {
			t.Errorf("catalog with %s is taken", to)
		}
	}
}

// packedOf makes a .cugraph file of the public form, with content for some sections.
func packedOf(counts [5]uint32, content map[int][]byte) []byte {
	out := append([]byte(PackedMagic), binary.LittleEndian.AppendUint32(nil, PackedVersion)...)
	for _, n := range []uint32{counts[0], counts[1], counts[2], counts[3], Sections, counts[4]} {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	out = append(out, make([]byte, HeaderBytes-len(out))...)
	at := uint64(HeaderBytes + Sections*EntryBytes)
	var body []byte
	for i := range Sections {
		out = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(out, uint32(i)), 0)
		out = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(out, at), uint64(len(content[i])))
		body = append(body, content[i]...)
		at += uint64(len(content[i]))
	}
	return append(out, body...)
}

func packedDoc() []byte {
	return packedOf([5]uint32{9, 2, 1, 1, 1}, map[int][]byte{SecStrings: []byte("\x01\x00\x00\x00f"), SecNodes: make([]byte, 2*NodeBytes), SecDependencies: make([]byte, EdgeBytes), SecGenerators: make([]byte, SeedBytes),
		SecAllocatorEvents: []byte(`{"start_base_addr":64,"events":[{"type":"alloc","ptr":64,"size":8}]}` + "\x00\x00"), SecOutputTensors: []byte(`{"tensors":[{},{}]}`), SecTopologyKey: []byte("key\x00")})
}

func TestReadPacked(t *testing.T) {
	b := packedDoc()
	got, err := ReadPacked(b)
	want := Packed{Flags: 9, Nodes: 2, Dependencies: 1, Generators: 1, Strings: 1, OutputTensors: 2, TopologyKey: "key", Memory: &Memory{Start: 64, Allocs: 1, Low: 64, High: 72}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Memory{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for n := range len(b) {
		if _, err := ReadPacked(b[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes it is taken", n, len(b))
		}
	}
	if _, err := ReadPacked(append(b, 0, 0, 0, 0)); err != nil {
		t.Errorf("filled up to a multiple of something: %v", err)
	}
	odd := packedOf([5]uint32{}, map[int][]byte{SecParamIndex: make([]byte, 7)})
	if _, err := ReadPacked(odd); err == nil || !strings.Contains(err.Error(), "param index") {
		t.Errorf("half an index: %v", err)
	}
}
