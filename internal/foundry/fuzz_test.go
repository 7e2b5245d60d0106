package foundry

import (
	"encoding/json"
	"slices"
	"testing"
)

func FuzzGraph(f *testing.F) {
	f.Add([]byte(graphDoc))
	f.Add([]byte(`{"nodes":[{"id":18446744073709551615,"type":"x","params":{"kernel_source_binary_hash":1e3}}],"dependencies":[{"from":0}]}`))
	f.Add([]byte(`{"a":[[[{"b":{}},"\ud800\u0061"]]],"nodes":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := ReadGraph(b)
		if err != nil {
			return
		}
		kernels := 0
		for _, k := range g.Kernels {
			kernels += k.Nodes
		}
		if !json.Valid(b) || g.Nodes > len(b) || kernels > g.Nodes || g.Memory.Low > g.Memory.High {
			t.Errorf("%q is taken for %+v", b, g)
		}
	})
}

func FuzzPacked(f *testing.F) {
	f.Add(packedDoc())
	f.Add(packedOf([5]uint32{}, nil))
	f.Add([]byte(PackedMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ReadPacked(b)
		if err == nil && (int64(p.Nodes)*NodeBytes+int64(p.Dependencies)*EdgeBytes+int64(p.Generators)*SeedBytes+int64(len(p.TopologyKey)) > int64(len(b)) || int64(p.Strings) > int64(len(b))) {
			t.Errorf("%+v in %d bytes", p, len(b))
		}
	})
}

func FuzzImages(f *testing.F) {
	f.Add(slices.Concat(image(1, "abc"), image(2, "d", "", "e")))
	f.Add([]byte("\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := readImages(b)
		if err != nil {
			return
		}
		var size uint64
		for _, m := range list {
			size += 16 + m.Bytes + 8*uint64(m.Segments)
		}
		if size > uint64(len(b)) {
			t.Errorf("%d bytes of images in %d", size, len(b))
		}
	})
}

func FuzzEntries(f *testing.F) {
	f.Add([]byte("00000000000000ff\nf,filename=a,binary_flags=2,num_segments=3\n2\nf\ng\n---\n8000000000000000\nh,binary_flags=0\n0\n---\n"))
	f.Add([]byte("0000000000000005\na,binary_flags=0\n18446744073709551615\n---\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := ReadEntries(b)
		if err != nil {
			return
		}
		size := 0
		for _, d := range list {
			size += 16 + len(d.Base)
			for _, name := range d.Functions {
				size += 1 + len(name)
			}
		}
		if size > len(b) {
			t.Errorf("%d bytes of entry points in %d", size, len(b))
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"topology_groups":[{"topology_key":"k","template":"a","members":["a","b"]}]}`))
	f.Add([]byte(`{"topology_groups":[],"topology_groups":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		groups, err := ReadManifest(b)
		if err == nil && (!json.Valid(b) || countMembers(groups) > len(b)) {
			t.Errorf("%q is taken for %+v", b, groups)
		}
	})
}

func FuzzCatalog(f *testing.F) {
	f.Add([]byte(`{"abi":1,"model":"m","batch_sizes":[1],"seq_len_bucket":8,"base_address":1,"region_size_bytes":2,"scratch_size_bytes":3,"files":[{"path":"a","size":1,"sha256":"00"}]}`))
	f.Add([]byte(`{"vllm_version":"a","gpu_total_memory":1,"final_alloc_offset":18446744073709551615}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadCatalog(b)
		_, stateErr := ReadState(b)
		_, offsetErr := ReadOffset(b)
		if (err == nil || stateErr == nil || offsetErr == nil) && !json.Valid(b) {
			t.Errorf("%q is taken", b)
		}
		if err == nil && (c.Model == "" || len(c.Files) > len(b)) {
			t.Errorf("%q is taken for %+v", b, c)
		}
	})
}
