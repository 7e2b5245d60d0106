package foundry

import (
	"bytes"
	"encoding/binary"

	"assay/internal/foundry"
)

// packGraph makes the .cugraph form of a graph.
func packGraph(g graph) []byte {
	var body [foundry.Sections]bytes.Buffer
	names := map[string]uint32{}
	name := func(s string) uint32 {
		i, known := names[s]
		if !known {
			i = uint32(len(names))
			names[s] = i
			body[foundry.SecStrings].Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
			body[foundry.SecStrings].WriteString(s)
		}
		return i
	}
	params := uint32(0)
	for _, n := range g.Nodes {
		b := make([]byte, foundry.NodeBytes)
		binary.LittleEndian.PutUint32(b, uint32(n.ID))
		binary.LittleEndian.PutUint32(b[4:], name(n.Type))
		binary.LittleEndian.PutUint32(b[8:], name(n.Params.FunctionName))
		binary.LittleEndian.PutUint64(b[16:], n.Params.BinaryHash)
		binary.LittleEndian.PutUint32(b[24:], params)
		binary.LittleEndian.PutUint32(b[28:], uint32(len(n.Params.Kernel)))
		body[foundry.SecNodes].Write(b)
		for _, p := range n.Params.Kernel {
			body[foundry.SecParamIndex].Write(binary.LittleEndian.AppendUint64(nil, uint64(body[foundry.SecParamData].Len())))
			body[foundry.SecParamData].WriteString(p.ValueHex)
			params++
		}
	}
	for _, d := range g.Dependencies {
		body[foundry.SecDependencies].Write(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, uint32(d.From)), uint32(d.To)))
	}
	body[foundry.SecAllocatorEvents].Write(encode(g.Allocator))
	body[foundry.SecOutputTensors].Write(encode(g.Outputs))
	body[foundry.SecTopologyKey].WriteString(g.TopologyKey)

	out := append(make([]byte, 0, 4096), foundry.PackedMagic...)
	for _, n := range []uint32{foundry.PackedVersion, 0, uint32(len(g.Nodes)), uint32(len(g.Dependencies)), 0, foundry.Sections, uint32(len(names))} {
		out = binary.LittleEndian.AppendUint32(out, n)
	}
	out = append(out, make([]byte, foundry.HeaderBytes-len(out))...)
	offset := uint64(foundry.HeaderBytes + foundry.Sections*foundry.EntryBytes)
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
