package foundry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"assay/internal/durable"
)

const (
	maxFileBytes = 64 << 20
	maxFiles     = 10_000
)

// Load checks a model's archive against what it shall be, and returns the number of
// its graphs. Errors say "archive incomplete", "obsolete ABI", "layout mismatch" or
// "binding mismatch", as the loader's do, or what else is wrong.
func Load(dir string, s Spec) (int, error) {
	root := Folder(dir, s.Model)
	fail := func(err error) (int, error) { return 0, fmt.Errorf("load archive %s: %w", root, err) }
	b, err := read(root, catalogFile)
	if errors.Is(err, fs.ErrNotExist) {
		return fail(fmt.Errorf("archive incomplete: model %s has no %s", s.Model, catalogFile))
	} else if err != nil {
		return fail(err)
	}
	var c catalog
	if err := json.Unmarshal(b, &c); err != nil {
		return fail(fmt.Errorf("%s: %w", catalogFile, err))
	}
	if err := c.matches(s); err != nil {
		return fail(err)
	}
	files, err := c.readAll(root)
	if err != nil {
		return fail(err)
	}
	if err := checkRank(files, s); err != nil {
		return fail(err)
	}
	return len(s.BatchSizes), nil
}

func (c catalog) matches(s Spec) error {
	switch {
	case c.ABI != catalogABI:
		return fmt.Errorf("obsolete ABI %d: want %d", c.ABI, catalogABI)
	case c.Model != s.Model || c.Binding != s.Binding:
		return fmt.Errorf("binding mismatch: saved for %s (%s), wanted for %s (%s)", c.Model, c.Binding, s.Model, s.Binding)
	case c.BaseAddress != s.BaseAddress || c.RegionSizeBytes != s.RegionSizeBytes || c.ScratchSizeBytes != s.ScratchSizeBytes || c.SeqLenBucket != s.SeqLenBucket:
		return errors.New("layout mismatch: base_address, region_size_bytes, scratch_size_bytes and the bucket must be those of the save")
	}
	for _, n := range s.BatchSizes {
		if !slices.Contains(c.BatchSizes, n) {
			return fmt.Errorf("archive incomplete: there is no graph for a batch of %d", n)
		}
	}
	if !slices.Equal(c.BatchSizes, s.BatchSizes) {
		return errors.New("layout mismatch: batch_sizes must be those of the save")
	}
	return nil
}

func read(root, name string) ([]byte, error) {
	f, err := durable.OpenPlain(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > maxFileBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxFileBytes)
	}
	return b, nil
}

// readAll reads the files of a catalog and holds them against their digests.
func (c catalog) readAll(root string) (map[string][]byte, error) {
	if len(c.Files) > maxFiles {
		return nil, fmt.Errorf("%s: %d files, more than %d", catalogFile, len(c.Files), maxFiles)
	}
	out := map[string][]byte{}
	for _, f := range c.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) {
			return nil, fmt.Errorf("%s: %q leads out of the archive", catalogFile, f.Path)
		}
		b, err := read(root, f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("archive incomplete: %s is missing", f.Path)
		} else if err != nil {
			return nil, err
		}
		if sum := sha256.Sum256(b); len(b) == 0 || hex.EncodeToString(sum[:]) != f.SHA256 {
			return nil, fmt.Errorf("%s is not what was saved", f.Path)
		}
		out[f.Path] = b
	}
	return out, nil
}

// checkRank holds the files of a rank against each other.
func checkRank(files map[string][]byte, s Spec) error {
	get := func(name string) ([]byte, error) {
		if b := files[rankFolder+"/"+name]; b != nil {
			return b, nil
		}
		return nil, fmt.Errorf("archive incomplete: %s is not listed", name)
	}
	images, err := get(imagesFile)
	if err != nil {
		return err
	}
	entries, err := get(entriesFile)
	if err != nil {
		return err
	}
	binaries, err := checkBinaries(images, entries)
	if err != nil {
		return err
	}
	b, err := get(manifestFile)
	if err != nil {
		return err
	}
	var m manifest
	if err := strict(b, &m); err != nil {
		return fmt.Errorf("%s: %w", manifestFile, err)
	}
	seen := map[string]bool{}
	for _, g := range m.Groups {
		if len(g.Members) == 0 || g.Template != g.Members[0] {
			return fmt.Errorf("%s: the template of group %s is not its first member", manifestFile, g.TopologyKey)
		}
		for _, name := range g.Members {
			if seen[name] {
				return fmt.Errorf("%s: %s is in two groups", manifestFile, name)
			}
			seen[name] = true
			if err := checkMember(get, name, g.TopologyKey, binaries, s); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if len(seen) != len(s.BatchSizes) {
		return fmt.Errorf("archive incomplete: %d graphs for %d batch sizes", len(seen), len(s.BatchSizes))
	}
	return checkOffset(get, s)
}

func checkMember(get func(string) ([]byte, error), name, key string, binaries []deviceBinary, s Spec) error {
	b, err := get(name)
	if err != nil {
		return err
	}
	var g graph
	if err := strict(b, &g); err != nil {
		return err
	}
	packed, err := get(strings.TrimSuffix(name, ".json") + ".cugraph")
	if err != nil {
		return err
	}
	nodes, err := checkGraph(packed)
	switch {
	case err != nil:
		return fmt.Errorf(".cugraph: %w", err)
	case nodes != len(g.Nodes):
		return fmt.Errorf("%d nodes as JSON, %d in the .cugraph", len(g.Nodes), nodes)
	case g.TopologyKey != key:
		return fmt.Errorf("topology key %s in group %s", g.TopologyKey, key)
	}
	for _, n := range g.Nodes {
		if h := n.Params.BinaryHash; h != 0 && !slices.ContainsFunc(binaries, func(d deviceBinary) bool {
			return d.hash == h && slices.Contains(d.funcs, n.Params.FunctionName)
		}) {
			return fmt.Errorf("node %d: no binary %016x with %s", n.ID, h, n.Params.FunctionName)
		}
	}
	inside := func(ptr uint64) bool { return ptr >= s.BaseAddress && ptr-s.BaseAddress < s.RegionSizeBytes }
	if !inside(g.Allocator.StartBaseAddr) {
		return fmt.Errorf("layout mismatch: start_base_addr %#x is outside of the region", g.Allocator.StartBaseAddr)
	}
	for _, e := range g.Allocator.Events {
		if e.Type == "alloc" && !inside(e.Ptr) {
			return fmt.Errorf("layout mismatch: an allocation at %#x is outside of the region", e.Ptr)
		}
	}
	return nil
}

func checkOffset(get func(string) ([]byte, error), s Spec) error {
	b, err := get(offsetFile)
	if err != nil {
		return err
	}
	var o struct {
		Final uint64 `json:"final_alloc_offset"`
	}
	if err := strict(b, &o); err != nil {
		return fmt.Errorf("%s: %w", offsetFile, err)
	}
	if o.Final > s.RegionSizeBytes {
		return fmt.Errorf("layout mismatch: final_alloc_offset %d is beyond the region of %d bytes", o.Final, s.RegionSizeBytes)
	}
	return nil
}

// strict decodes one JSON document and nothing behind it.
func strict(b []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON object")
	}
	return nil
}
