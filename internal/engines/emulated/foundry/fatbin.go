package foundry

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// deviceBinary is a device binary and the kernels in it.
type deviceBinary struct {
	hash  uint64
	name  string
	funcs []string
	image []byte
}

// packImages makes fatbin_image_packed.img: hash, size and bytes of each.
func packImages(list []deviceBinary) []byte {
	var out []byte
	for _, d := range list {
		out = binary.LittleEndian.AppendUint64(out, d.hash)
		out = binary.LittleEndian.AppendUint64(out, uint64(len(d.image)))
		out = append(out, d.image...)
	}
	return out
}

// packEntries makes fatbin_entrypoint_packed.txt.
func packEntries(list []deviceBinary) []byte {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "%016x\n%s,filename=%s,binary_flags=0\n%d\n", d.hash, d.funcs[0], d.name, len(d.funcs))
		for _, f := range d.funcs {
			b.WriteString(f + "\n")
		}
		b.WriteString("---\n")
	}
	return []byte(b.String())
}
