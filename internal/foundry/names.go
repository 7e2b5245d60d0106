package foundry

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// The files of a rank, and of a model's folder.
const (
	ManifestFile = "graph_manifest.json"
	ImagesFile   = "fatbin_image_packed.img"
	EntriesFile  = "fatbin_entrypoint_packed.txt"
	OffsetFile   = "final_alloc_offset.json"
	StateFile    = "warmup_state.json"
	CatalogFile  = "catalog.json"

	jsonSuffix   = ".json"
	packedSuffix = ".cugraph"
)

// Folder is the name of a model's folder in archives that have a catalog.
func Folder(model string) string {
	name := url.PathEscape(model)
	if strings.Trim(name, ".") == "" { // no folder's own name
		name = strings.ReplaceAll(name, ".", "%2E")
	}
	return name
}

// RankFolder is the name of a rank's folder.
func RankFolder(rank int) string { return "rank_" + strconv.Itoa(rank) }

// rankOf is the number in the name of a rank's folder.
func rankOf(dir string) (int, bool) {
	digits, ok := strings.CutPrefix(path.Base(dir), "rank_")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0 && RankFolder(n) == path.Base(dir)
}

// GraphName is what the name of a graph says, as integrations into serving engines
// write it. Requests and Piecewise are nil where it says that there is no number.
type GraphName struct {
	Index     int    `json:"index"`
	Mode      string `json:"mode"`
	Tokens    int    `json:"tokens"`
	Requests  *int   `json:"requests"`
	Uniform   bool   `json:"uniform"`
	LoRA      bool   `json:"lora"`
	Piecewise *int   `json:"piecewise"`
}

var graphName = regexp.MustCompile(`^graph_(\d{1,9})_([A-Za-z_]{1,64})_t(\d{1,9})_r(\d{1,9}|N)_([UX])([LX])_pc(\d{1,9}|N)$`)

// ParseGraphName reads the name of a graph, without folder and ending.
func ParseGraphName(stem string) (GraphName, bool) {
	m := graphName.FindStringSubmatch(stem)
	if m == nil {
		return GraphName{}, false
	}
	n := GraphName{Mode: m[2], Uniform: m[5] == "U", LoRA: m[6] == "L", Requests: number(m[4]), Piecewise: number(m[7])}
	n.Index, n.Tokens = *number(m[1]), *number(m[3])
	return n, true
}

// number is nil for N. The expression lets nothing else through that is no number.
func number(s string) *int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return nil
	}
	return &n
}

// Batch is the batch size of a decode step: one token for each request.
func (n GraphName) Batch() int {
	if n.Requests != nil {
		return *n.Requests
	}
	return n.Tokens
}

// String is the name as a file has it.
func (n GraphName) String() string {
	or := func(p *int) string {
		if p == nil {
			return "N"
		}
		return strconv.Itoa(*p)
	}
	pick := func(yes bool, letter string) string {
		if yes {
			return letter
		}
		return "X"
	}
	return fmt.Sprintf("graph_%d_%s_t%d_r%s_%s%s_pc%s", n.Index, n.Mode, n.Tokens, or(n.Requests), pick(n.Uniform, "U"), pick(n.LoRA, "L"), or(n.Piecewise))
}
