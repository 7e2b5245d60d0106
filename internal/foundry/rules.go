package foundry

import (
	"cmp"
	"fmt"
	"path"
	"slices"
)

func sorted(list []int) []int {
	slices.Sort(list)
	return slices.Compact(list)
}

// rules are what has to hold between the files of a rank.
var rules = []func(Rank) []Problem{pairs, forms, groups, binaries, kernels}

// mostOfOne is how often the same is told of one file.
const mostOfOne = 20

func problem(kind, at, format string, args ...any) Problem {
	return Problem{Kind: kind, Path: at, Text: fmt.Sprintf(format, args...)}
}

// pairs wants both forms of every graph: a loader falls back to the other one silently.
func pairs(r Rank) []Problem {
	var out []Problem
	for _, g := range r.Graphs {
		at := path.Join(r.Dir, g.Name)
		switch {
		case !g.hasPacked:
			out = append(out, problem(Pair, at+packedSuffix, "archive incomplete: it is missing beside %s", g.Name+jsonSuffix))
		case !g.hasJSON:
			out = append(out, problem(Pair, at+jsonSuffix, "archive incomplete: it is missing beside %s", g.Name+packedSuffix))
		}
	}
	return out
}

// forms holds both forms of a graph against each other. Dependencies of the JSON form
// are left out of all but a group's template.
func forms(r Rank) []Problem {
	var out []Problem
	for _, g := range r.Graphs {
		if g.Graph == nil || g.Packed == nil {
			continue
		}
		at := path.Join(r.Dir, g.Name) + packedSuffix
		wrong := func(what string, packed, graph any) {
			out = append(out, problem(Differs, at, "%s: %v here, %v in %s", what, packed, graph, g.Name+jsonSuffix))
		}
		j, p := g.Graph, g.Packed
		if uint64(p.Nodes) != uint64(j.Nodes) {
			wrong("nodes", p.Nodes, j.Nodes)
		}
		if j.template && uint64(p.Dependencies) != uint64(j.Dependencies) {
			wrong("dependencies", p.Dependencies, j.Dependencies)
		}
		if uint64(p.Generators) != uint64(j.Generators) {
			wrong("generators", p.Generators, j.Generators)
		}
		if p.TopologyKey != j.TopologyKey {
			wrong("topology key", fmt.Sprintf("%.40q", p.TopologyKey), fmt.Sprintf("%.40q", j.TopologyKey))
		}
		if p.Memory != nil && *p.Memory != j.Memory {
			wrong("allocations", *p.Memory, j.Memory)
		}
	}
	return out
}

func (m Memory) String() string {
	return fmt.Sprintf("%d from %s (%s to %s)", m.Allocs, m.Start, m.Low, m.High)
}

// groups wants every graph in exactly one group of the manifest, the template first.
func groups(r Rank) []Problem {
	if !r.manifest {
		return nil // which is told where it is read
	}
	at := path.Join(r.Dir, ManifestFile)
	var out []Problem
	wrong := func(format string, args ...any) {
		if len(out) < mostOfOne {
			out = append(out, problem(BadGroup, at, format, args...))
		}
	}
	graphs := map[string]GraphFiles{}
	for _, g := range r.Graphs {
		graphs[g.Name+jsonSuffix] = g
	}
	in := map[string]int{}
	for _, group := range r.Groups {
		if group.Template != group.Members[0] {
			wrong("the template %.120q of group %.40q is not its first member", group.Template, group.TopologyKey)
		}
		for i, m := range group.Members {
			g, ok := graphs[m]
			switch {
			case !ok || !g.hasJSON:
				wrong("archive incomplete: member %.120q of group %.40q is not there", m, group.TopologyKey)
			case g.Graph != nil && g.Graph.TopologyKey != group.TopologyKey:
				wrong("%s has the topology key %.40q and is in group %.40q", m, g.Graph.TopologyKey, group.TopologyKey)
			case i == 0 && g.Graph != nil && g.Graph.Nodes > 1 && !g.Graph.template:
				wrong("%s is a template and has no dependencies", m)
			}
			in[m]++
		}
	}
	for _, g := range r.Graphs {
		name := g.Name + jsonSuffix
		switch n := in[name]; {
		case n == 0 && g.hasJSON:
			wrong("%s is in no group", name)
		case n > 1:
			wrong("%s is in two groups, or twice in one", name)
		}
	}
	return out
}

// binaries wants the same ones in both files, in the same order: a worker aborts
// otherwise.
func binaries(r Rank) []Problem {
	if !r.images || !r.entries {
		return nil
	}
	at := path.Join(r.Dir, EntriesFile)
	if len(r.Images) != len(r.Binaries) {
		return []Problem{problem(BadBinaries, at, "mismatch between img and txt files: %d images in %s, %d binaries here", len(r.Images), ImagesFile, len(r.Binaries))}
	}
	for i, m := range r.Images {
		switch d := r.Binaries[i]; {
		case m.Hash != d.Hash:
			return []Problem{problem(BadBinaries, at, "hash mismatch: binary %d is %s in %s and %s here", i, m.Hash, ImagesFile, d.Hash)}
		case m.Segments != d.Segments:
			return []Problem{problem(BadBinaries, at, "binary %s has %d segments in %s and %d here", d.Hash, m.Segments, ImagesFile, d.Segments)}
		}
	}
	return nil
}

// kernels wants every kernel that a graph launches in the binary that it names.
func kernels(r Rank) []Problem {
	if !r.entries {
		return nil
	}
	known, listed := map[Hash]bool{}, map[Kernel]bool{}
	for _, d := range r.Binaries {
		known[d.Hash] = true
		for _, f := range d.Functions {
			listed[Kernel{Binary: d.Hash, Function: f}] = true
		}
	}
	var out []Problem
	for _, g := range r.Graphs {
		if g.Graph == nil {
			continue
		}
		at := path.Join(r.Dir, g.Name) + jsonSuffix
		last := len(out) + mostOfOne
		for _, k := range g.Graph.Kernels {
			switch {
			case k.Binary == 0, len(out) == last:
			case !known[k.Binary]:
				out = append(out, problem(NoKernel, at, "no binary %s in %s, which has %.120q", k.Binary, EntriesFile, k.Function))
			case !listed[Kernel{Binary: k.Binary, Function: k.Function}]:
				out = append(out, problem(NoKernel, at, "no binary with %.120q: %s lists %s without it", k.Function, EntriesFile, k.Binary))
			}
		}
	}
	return out
}

// Outside lists the graphs with memory outside of [base, base+size).
func (r Rank) Outside(base, size uint64) []Problem {
	var out []Problem
	for _, g := range r.Graphs {
		check := func(m *Memory, suffix string) {
			if what := m.outside(base, size); what != "" {
				out = append(out, problem("address", path.Join(r.Dir, g.Name)+suffix, "layout mismatch: %s the region of %d bytes at %#x", what, size, base))
			}
		}
		if g.Graph != nil {
			check(&g.Graph.Memory, jsonSuffix)
		}
		// The other form is told of where the two differ; alone it counts itself.
		if g.Graph == nil && g.Packed != nil && g.Packed.Memory != nil {
			check(g.Packed.Memory, packedSuffix)
		}
	}
	return out
}

// Held holds files against an inventory of them.
func Held(listed, have []File) []Problem {
	there := map[string]File{}
	for _, f := range have {
		there[f.Path] = f
	}
	seen := map[string]bool{}
	var out []Problem
	for _, l := range listed {
		f, ok := there[l.Path]
		switch {
		case seen[l.Path]:
			out = append(out, problem(Changed, l.Path, "the inventory lists it twice"))
		case !ok:
			out = append(out, problem(Missing, l.Path, "archive incomplete: %.200q is missing, and the inventory lists it", l.Path))
		case f.Size != l.Size:
			out = append(out, problem(Changed, l.Path, "it has %d bytes and had %d when it was saved: it is not what was saved", f.Size, l.Size))
		case f.SHA256 != "" && f.SHA256 != l.SHA256:
			out = append(out, problem(Changed, l.Path, "its SHA-256 is %s and the inventory says %.64s: it is not what was saved", f.SHA256, l.SHA256))
		}
		seen[l.Path] = true
	}
	for _, f := range have {
		if !seen[f.Path] {
			out = append(out, problem(Extra, f.Path, "the inventory does not list it"))
		}
	}
	slices.SortFunc(out, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Kind, b.Kind)) })
	return out
}
