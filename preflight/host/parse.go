package host

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"assay/schemas"
)

// maxText bounds what is read of a tool or a file of metadata, maxDevices a list.
const (
	maxText    = 1 << 20
	maxDevices = 1024
)

// NvidiaQuery asks for what ParseNvidia reads.
var NvidiaQuery = []string{"nvidia-smi", "--query-gpu=index,name,memory.total,memory.used,driver_version,compute_cap,clocks.sm,clocks.max.sm", "--format=csv,noheader,nounits"}

// NPUQuery asks for what ParseNPU reads.
var NPUQuery = []string{"npu-smi", "info", "-m"}

// ParseNvidia reads the answer to NvidiaQuery: GPUs, and the driver's version.
func ParseNvidia(out []byte) ([]schemas.HostGPU, string, error) {
	if len(out) > maxText {
		return nil, "", fmt.Errorf("nvidia-smi: more than %d bytes", maxText)
	}
	r := csv.NewReader(bytes.NewReader(out))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, 8
	rows, err := r.ReadAll()
	if err != nil {
		return nil, "", fmt.Errorf("nvidia-smi: %w", err)
	}
	if len(rows) == 0 || len(rows) > maxDevices {
		return nil, "", fmt.Errorf("nvidia-smi: lists %d GPUs", len(rows))
	}
	var list []schemas.HostGPU
	driver := ""
	for _, row := range rows {
		index, err := strconv.Atoi(row[0])
		if err != nil || index < 0 {
			return nil, "", fmt.Errorf("nvidia-smi: index %.40q", row[0])
		}
		g := schemas.HostGPU{Index: index, Name: row[1], Capability: known(row[5])}
		if g.MemoryBytes, err = mebibytes(row[2]); err != nil {
			return nil, "", err
		}
		if g.UsedBytes, err = mebibytes(row[3]); err != nil {
			return nil, "", err
		}
		g.ClockMHz, _ = strconv.Atoi(row[6]) // some cards do not tell
		g.MaxMHz, _ = strconv.Atoi(row[7])
		driver = known(row[4])
		list = append(list, g)
	}
	return list, driver, nil
}

// known is empty for what the tool puts in place of a value.
func known(text string) string {
	if strings.HasPrefix(text, "[") || text == "N/A" {
		return ""
	}
	return text
}

func mebibytes(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<40 {
		return 0, fmt.Errorf("nvidia-smi: memory %.40q", text)
	}
	return n << 20, nil
}

// npuRow is NPU ID, chip ID, logic ID ("-" for a controller, which computes
// nothing), chip name.
var npuRow = regexp.MustCompile(`^\s*(\d+)\s+(\d+)\s+(\d+|-)\s+(\S.*?)\s*$`)

// ParseNPU reads the answer to NPUQuery.
func ParseNPU(out []byte) ([]schemas.HostNPU, error) {
	if len(out) > maxText {
		return nil, fmt.Errorf("npu-smi: more than %d bytes", maxText)
	}
	var list []schemas.HostNPU
	for line := range strings.Lines(string(out)) {
		m := npuRow.FindStringSubmatch(line)
		if m == nil || m[3] == "-" {
			continue
		}
		index, err := strconv.Atoi(m[3])
		if err != nil || len(list) == maxDevices {
			return nil, fmt.Errorf("npu-smi: logic ID %.40q", m[3])
		}
		list = append(list, schemas.HostNPU{Index: index, Name: m[4]})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("npu-smi: lists no chip")
	}
	return list, nil
}

// separators of a package's name are one.
var separators = regexp.MustCompile(`[-_.]+`)

// ParseMetadata reads name and version of an installed package, from the head of its
// METADATA.
func ParseMetadata(content []byte) (name, version string, err error) {
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" { // what follows is a description
			break
		}
		key, value, ok := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); {
		case !ok:
		case strings.EqualFold(key, "name") && name == "":
			name = strings.ToLower(separators.ReplaceAllString(value, "-"))
		case strings.EqualFold(key, "version") && version == "":
			version = value
		}
	}
	if name == "" || version == "" || len(name)+len(version) > 256 {
		return "", "", fmt.Errorf("metadata: no name and version")
	}
	return name, version, nil
}

// compare compares versions number by number, up to what is no number.
func compare(a, b string) int {
	x, y := numbers(a), numbers(b)
	for i := range max(len(x), len(y)) {
		var p, q int
		if i < len(x) {
			p = x[i]
		}
		if i < len(y) {
			q = y[i]
		}
		if p != q {
			return p - q
		}
	}
	return 0
}

func numbers(v string) []int {
	var out []int
	for part := range strings.SplitSeq(v, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || len(out) == 8 {
			break
		}
		out = append(out, n)
	}
	return out
}

// torchCUDA is the CUDA version in that of a torch build: 12.9 of 2.11.0+cu129.
func torchCUDA(version string) string {
	_, local, _ := strings.Cut(version, "+cu")
	if len(local) < 3 || len(local) > 4 || len(numbers(local)) != 1 {
		return ""
	}
	return local[:len(local)-1] + "." + local[len(local)-1:]
}

// toolkit is the CUDA version in a toolkit's version.json.
func toolkit(content []byte) string {
	var doc struct {
		CUDA struct {
			Version string `json:"version"`
		} `json:"cuda"`
	}
	if json.Unmarshal(content, &doc) != nil || len(numbers(doc.CUDA.Version)) < 2 {
		return ""
	}
	return doc.CUDA.Version
}
