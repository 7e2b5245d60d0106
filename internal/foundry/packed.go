package foundry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The public form of a .cugraph file: a header, a table of sections, and those.
const (
	PackedMagic   = "CUGRAPH\x00"
	PackedVersion = 1
	Sections      = 11
	HeaderBytes   = 64
	EntryBytes    = 24
	NodeBytes     = 168
	EdgeBytes     = 8
	IndexBytes    = 8
	SeedBytes     = 24 // of a generator
)

// The sections, in their order in a file.
const (
	SecStrings = iota
	SecNodes
	SecDependencies
	SecParamIndex
	SecParamData
	SecArgBuffers
	SecCommonAttrs
	SecGenerators
	SecAllocatorEvents
	SecOutputTensors
	SecTopologyKey
)

var sectionNames = [Sections]string{"strings", "nodes", "dependencies", "param index", "param data", "arg buffers", "common attrs", "generators", "allocator events", "output tensors", "topology key"}

// Packed is what is told of a graph by its .cugraph file.
type Packed struct {
	Flags         uint32  `json:"flags"`
	Nodes         uint32  `json:"nodes"`
	Dependencies  uint32  `json:"dependencies"`
	Generators    uint32  `json:"generators"`
	Strings       uint32  `json:"strings"`
	OutputTensors int     `json:"output_tensors"`
	TopologyKey   string  `json:"topology_key"`
	Memory        *Memory `json:"memory"` // nil where the section is empty
}

type section struct{ offset, size uint64 }

// ReadPacked reads a .cugraph file. Loaders look at magic and version alone, so that a
// file that was cut short is found here or by a crash.
func ReadPacked(b []byte) (Packed, error) {
	var p Packed
	const table = HeaderBytes + Sections*EntryBytes
	if len(b) < len(PackedMagic) || string(b[:8]) != PackedMagic {
		return p, errors.New("wrong magic: not a .cugraph file")
	}
	if len(b) < table {
		return p, fmt.Errorf("%d bytes: shorter than its header of %d", len(b), table)
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	if v := u32(8); v != PackedVersion {
		return p, fmt.Errorf("version %d: want %d", v, PackedVersion)
	}
	p.Flags, p.Nodes, p.Dependencies, p.Generators, p.Strings = u32(12), u32(16), u32(20), u32(24), u32(32)
	if n := u32(28); n != Sections {
		return p, fmt.Errorf("%d sections: want %d", n, Sections)
	}
	var list [Sections]section
	for i := range list {
		e := b[HeaderBytes+i*EntryBytes:]
		list[i] = section{binary.LittleEndian.Uint64(e[8:]), binary.LittleEndian.Uint64(e[16:])}
	}
	if err := p.checkSections(list, uint64(len(b))); err != nil {
		return p, err
	}
	return p, p.readTexts(func(i int) []byte { return b[list[i].offset : list[i].offset+list[i].size] })
}

// checkSections sees that sections lie in the file and apart, and are as long as the
// header's counts make them.
func (p Packed) checkSections(list [Sections]section, size uint64) error {
	for i, s := range list {
		switch {
		case s.offset > size || s.size > size-s.offset:
			return fmt.Errorf("section %d (%s) of %d bytes at %d reaches beyond the file's %d", i, sectionNames[i], s.size, s.offset, size)
		case s.size > 0 && s.offset < HeaderBytes+Sections*EntryBytes:
			return fmt.Errorf("section %d (%s) at %d lies in the header", i, sectionNames[i], s.offset)
		}
	}
	for _, t := range []struct {
		section int
		count   uint32
		each    uint64
	}{{SecNodes, p.Nodes, NodeBytes}, {SecDependencies, p.Dependencies, EdgeBytes}, {SecGenerators, p.Generators, SeedBytes}} {
		if have := list[t.section].size; have != uint64(t.count)*t.each {
			return fmt.Errorf("a table of %d bytes for %d %s: want %d each", have, t.count, sectionNames[t.section], t.each)
		}
	}
	if n := list[SecParamIndex].size; n%IndexBytes != 0 {
		return fmt.Errorf("a param index of %d bytes: want %d each", n, IndexBytes)
	}
	if n := list[SecStrings].size; uint64(p.Strings) > n {
		return fmt.Errorf("%d strings in %d bytes", p.Strings, n)
	}
	order := []int{}
	for i, s := range list {
		if s.size > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		if list[a].offset < list[b].offset {
			return -1
		}
		return 1
	})
	for n := 1; n < len(order); n++ {
		a, b := order[n-1], order[n]
		if list[b].offset-list[a].offset < list[a].size {
			return fmt.Errorf("sections %d (%s) and %d (%s) overlap", a, sectionNames[a], b, sectionNames[b])
		}
	}
	return nil
}

// readTexts reads the sections whose content is text.
func (p *Packed) readTexts(of func(section int) []byte) error {
	p.TopologyKey = strings.TrimRight(string(of(SecTopologyKey)), "\x00")
	if b := trimmed(of(SecAllocatorEvents)); len(b) > 0 {
		err := document(b, func(r *parser) error {
			m, err := readMemory(r)
			p.Memory = &m
			return err
		})
		if err != nil {
			return fmt.Errorf("allocator events: %w", err)
		}
	}
	if b := trimmed(of(SecOutputTensors)); len(b) > 0 {
		err := document(b, func(r *parser) (err error) {
			p.OutputTensors, err = readTensors(r)
			return err
		})
		if err != nil {
			return fmt.Errorf("output tensors: %w", err)
		}
	}
	return nil
}

// trimmed is a text without the zeros that may fill up its section.
func trimmed(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return b
}
