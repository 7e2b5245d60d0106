package foundry

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	magic       = "CUGRAPH\x00"
	version     = 1
	sections    = 11
	headerBytes = 64
	entryBytes  = 24
	nodeBytes   = 168
	edgeBytes   = 8
)

// The sections, in their order in a file.
const (
	secStrings = iota
	secNodes
	secDependencies
	secParamIndex
	secParamData
	secArgBuffers
	secCommonAttrs
	secGenerators
	secAllocatorEvents
	secOutputTensors
	secTopologyKey
)

// packGraph makes the .cugraph form of a graph.
func packGraph(g graph) []byte {
	var body [sections]bytes.Buffer
	names := map[string]uint32{}
	name := func(s string) uint32 {
		i, known := names[s]
		if !known {
			i = uint32(len(names))
			names[s] = i
			body[secStrings].Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
			body[secStrings].WriteString(s)
		}
		return i
	}
	params := uint32(0)
	for _, n := range g.Nodes {
		b := make([]byte, nodeBytes)
		binary.LittleEndian.PutUint32(b, uint32(n.ID))
		binary.LittleEndian.PutUint32(b[4:], name(n.Type))
		binary.LittleEndian.PutUint32(b[8:], name(n.Params.FunctionName))
		binary.LittleEndian.PutUint64(b[16:], n.Params.BinaryHash)
		binary.LittleEndian.PutUint32(b[24:], params)
		binary.LittleEndian.PutUint32(b[28:], uint32(len(n.Params.Kernel)))
		body[secNodes].Write(b)
		for _, p := range n.Params.Kernel {
			body[secParamIndex].Write(binary.LittleEndian.AppendUint64(nil, uint64(body[secParamData].Len())))
			body[secParamData].WriteString(p.ValueHex)
			params++
		}
	}
	for _, d := range g.Dependencies {
		body[secDependencies].Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(d.From)), uint32(d.To)))
	}
	body[secAllocatorEvents].Write(encode(g.Allocator))
	body[secOutputTensors].Write(encode(g.Outputs))
	body[secTopologyKey].WriteString(g.TopologyKey)

	out := append(make([]byte, 0, 4096), magic...)
	for _, n := range []uint32{version, 0, uint32(len(g.Nodes)), uint32(len(g.Dependencies)), 0, sections, uint32(len(names))} {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	out = append(out, make([]byte, headerBytes-len(out))...)
	offset := uint64(headerBytes + sections*entryBytes)
	for i := range body {
		out = binary.LittleEndian.AppendUint32(out, uint32(i))
		out = binary.LittleEndian.AppendUint32(out, 0)
		out = binary.LittleEndian.AppendUint64(out, offset)
		out = binary.LittleEndian.AppendUint64(out, uint64(body[i].Len()))
		offset += uint64(body[i].Len())
	}
	for i := range body {
		out = append(out, body[i].Bytes()...)
	}
	return out
}

// checkGraph holds a .cugraph file against what is public of its form: magic,
// version, sections within the file, tables of the stated lengths. The loader itself
// looks at the first two alone. It returns the number of nodes.
func checkGraph(b []byte) (nodes int, err error) {
	switch {
	case len(b) < headerBytes+sections*entryBytes:
		return 0, fmt.Errorf("%d bytes: shorter than its header", len(b))
	case string(b[:8]) != magic:
		return 0, errors.New("wrong magic: not a .cugraph file")
	case binary.LittleEndian.Uint32(b[8:]) != version:
		return 0, fmt.Errorf("version %d: want %d", binary.LittleEndian.Uint32(b[8:]), version)
	case binary.LittleEndian.Uint32(b[28:]) != sections:
		return 0, fmt.Errorf("%d sections: want %d", binary.LittleEndian.Uint32(b[28:]), sections)
	}
	nodes = int(binary.LittleEndian.Uint32(b[16:]))
	edges := binary.LittleEndian.Uint32(b[20:])
	for i := range sections {
		e := b[headerBytes+i*entryBytes:]
		offset, size := binary.LittleEndian.Uint64(e[8:]), binary.LittleEndian.Uint64(e[16:])
		if offset > uint64(len(b)) || size > uint64(len(b))-offset {
			return 0, fmt.Errorf("section %d of %d bytes at %d reaches beyond the file's %d", i, size, offset, len(b))
		}
		if i == secNodes && size != uint64(nodes)*nodeBytes {
			return 0, fmt.Errorf("a table of %d bytes for %d nodes: want %d each", size, nodes, nodeBytes)
		}
		if i == secDependencies && size != uint64(edges)*edgeBytes {
			return 0, fmt.Errorf("a table of %d bytes for %d dependencies: want %d each", size, edges, edgeBytes)
		}
	}
	return nodes, nil
}
