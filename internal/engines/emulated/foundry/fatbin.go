package foundry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// readImages returns the hashes of the images, in order.
func readImages(b []byte) ([]uint64, error) {
	var out []uint64
	next := func() (uint64, error) {
		if len(b) < 8 {
			return 0, errors.New("it ends amid a number")
		}
		n := binary.LittleEndian.Uint64(b)
		b = b[8:]
		return n, nil
	}
	skip := func(n uint64) error {
		if n > uint64(len(b)) {
			return fmt.Errorf("an image of %d bytes, and %d are left", n, len(b))
		}
		b = b[n:]
		return nil
	}
	for len(b) > 0 {
		hash, err := next()
		if err != nil {
			return nil, err
		}
		size, err := next()
		if err != nil {
			return nil, err
		}
		out = append(out, hash)
		if size > 0 {
			if err := skip(size); err != nil {
				return nil, err
			}
			continue
		}
		parts, err := next() // an image in segments
		if err != nil {
			return nil, err
		}
		for range parts {
			if size, err = next(); err != nil {
				return nil, err
			}
			if err := skip(size); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// readEntries returns the binaries of an entry point file, without their images.
func readEntries(b []byte) ([]deviceBinary, error) {
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	var out []deviceBinary
	for i := 0; i < len(lines); {
		rest := lines[i:]
		if len(rest) < 4 {
			return nil, fmt.Errorf("line %d: a binary has four lines at least", i+1)
		}
		hash, err := strconv.ParseUint(rest[0], 16, 64)
		if err != nil || len(rest[0]) != 16 {
			return nil, fmt.Errorf("line %d: %.40q is no hash of 16 hex digits", i+1, rest[0])
		}
		if !strings.Contains(rest[1], ",binary_flags=") {
			return nil, fmt.Errorf("line %d: no binary_flags", i+2)
		}
		n, err := strconv.Atoi(rest[2])
		if err != nil || n < 0 || n > len(rest)-4 {
			return nil, fmt.Errorf("line %d: %.40q entry points are not there", i+3, rest[2])
		}
		if rest[3+n] != "---" {
			return nil, fmt.Errorf("line %d: want ---", i+4+n)
		}
		out = append(out, deviceBinary{hash: hash, funcs: slices.Clone(rest[3 : 3+n])})
		i += 4 + n
	}
	return out, nil
}

// checkBinaries reads both files, which must name the same binaries in the same order.
func checkBinaries(images, entries []byte) ([]deviceBinary, error) {
	hashes, err := readImages(images)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", imagesFile, err)
	}
	list, err := readEntries(entries)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", entriesFile, err)
	}
	if len(hashes) != len(list) {
		return nil, fmt.Errorf("mismatch between img and txt files: %d images, %d entries", len(hashes), len(list))
	}
	for i, h := range hashes {
		if list[i].hash != h {
			return nil, fmt.Errorf("hash mismatch: binary %d is %016x in the img and %016x in the txt file", i, h, list[i].hash)
		}
	}
	return list, nil
}
