package foundry

// Limits of a folder of archives. They are far above what real ones hold.
const (
	MaxFiles     = 100_000
	MaxFileBytes = 64 << 20 // of every file that is read whole
)

// The layouts of folders that are told apart.
const (
	LayoutEmpty   = "empty"   // no files at all
	LayoutCatalog = "catalog" // a folder a model, each with a catalog: assay's own
	LayoutRanks   = "ranks"   // rank_N folders, as integrations into serving engines write them
	LayoutUnknown = "unknown" // anything else, and a mixture
)

// Archive describes a folder of archives.
type Archive struct {
	Layout   string    `json:"layout"`
	Bytes    int64     `json:"bytes"`
	Files    []File    `json:"files"` // sorted by path; without a digest what could not be read
	Models   []Model   `json:"models"`
	Problems []Problem `json:"problems"`
}

// Model is what the archive of one model holds.
type Model struct {
	// Name is that of the catalog, else what the folder's name stands for; "" where
	// ranks lie at the top.
	Name    string   `json:"name"`
	Dir     string   `json:"dir"`
	Catalog *Catalog `json:"catalog"`
	State   *State   `json:"warmup_state"`
	Ranks   []Rank   `json:"ranks"`
}

// Rank is what one decode rank of a model holds.
type Rank struct {
	// Index is -1 in a folder that is not named for a rank.
	Index            int          `json:"index"`
	Dir              string       `json:"dir"`
	Graphs           []GraphFiles `json:"graphs"`
	Groups           []Group      `json:"topology_groups"`
	Images           []Image      `json:"images"`
	Binaries         []Binary     `json:"binaries"`
	FinalAllocOffset *uint64      `json:"final_alloc_offset"`
	// There says which of the rank's files are there and could be read.
	manifest, images, entries bool
	names                     []string
}

// GraphFiles is a graph and its files.
type GraphFiles struct {
	// Name is that of the files, without ending.
	Name string `json:"name"`
	// Parsed is what the name says; nil when it is of no known form.
	Parsed *GraphName `json:"parsed"`
	// Graph and Packed are nil where the file is missing or unreadable.
	Graph  *Graph  `json:"graph"`
	Packed *Packed `json:"packed"`
	// hasJSON and hasPacked say whether the files are there at all.
	hasJSON, hasPacked bool
}

// The kinds of problems.
const (
	Unreadable   = "unreadable"    // could not be read for other reasons than its content
	Limit        = "limit"         // larger or more than anything real
	Link         = "link"          // a symbolic link that leaves the folder, or leads to no file
	Special      = "special-file"  // neither file nor folder
	Empty        = "empty-file"    // of no bytes
	Pair         = "pair"          // .json without .cugraph or the other way round
	BadJSON      = "json"          // a .json that is none
	BadGraph     = "graph"         // a graph whose JSON form is wrong
	BadPacked    = "cugraph"       // a .cugraph whose header, sections or counts are wrong
	Differs      = "graph-differs" // the two forms of a graph contradict each other
	BadManifest  = "manifest"      // missing or unreadable
	BadGroup     = "manifest-group"
	BadImages    = "images"  // missing or unreadable packed images
	BadEntries   = "entries" // missing or unreadable entry points
	BadBinaries  = "binaries"
	NoKernel     = "kernel" // a kernel that is in no binary
	BadOffset    = "offset"
	BadState     = "warmup-state"
	StateDiffers = "warmup-offset" // of no rank
	BadCatalog   = "catalog"
	Missing      = "inventory-missing"
	Changed      = "inventory-changed"
	Extra        = "inventory-extra"
)

// Problem is one thing that is wrong with an archive.
type Problem struct {
	Kind string `json:"kind"`
	Path string `json:"path"`
	Text string `json:"text"`
}

// BatchSizes lists the batch sizes of a rank's graphs, sorted; known is false where the
// name of a graph does not tell.
func (r Rank) BatchSizes() (sizes []int, known bool) {
	known = true
	for _, g := range r.Graphs {
		if g.Parsed == nil {
			known = false
			continue
		}
		sizes = append(sizes, g.Parsed.Batch())
	}
	return sorted(sizes), known
}
