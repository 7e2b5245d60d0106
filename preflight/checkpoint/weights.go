package checkpoint

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"assay/schemas"
)

// readers bounds how many headers are read at once: each is a round trip where the
// folder lies on a network file system.
const readers = 8

// maxIndexBytes bounds the index; that of a large mixture of experts has 10 MiB.
const maxIndexBytes = 64 << 20

// shard is one file of weights and what its header says.
type shard struct {
	name   string
	header Header
	err    error
	bad    bool // nothing can be said of its tensors
}

var (
	// prepackedName is how PyPTO's tool names what it writes beside a checkpoint.
	prepackedName = regexp.MustCompile(`^pypto-.*-stacked-r[0-9]+\.safetensors$`)
	// shardName is how one file of several is named.
	shardName = regexp.MustCompile(`^(.+)-([0-9]{1,6})-of-([0-9]{1,6})\.safetensors$`)
)

// readWeights reads the headers of all weights and holds them against the index and
// the configuration.
func (f *folder) readWeights(ctx context.Context) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if strings.HasSuffix(name, ".safetensors") && !prepackedName.MatchString(name) {
			names = append(names, name)
		}
	}
	index, indexName := f.readIndex()
	if len(names) == 0 {
		f.withoutSafetensors(index != nil)
	}
	listed, all := f.listed(names, index)
	if indexName == "" {
		all = f.withoutIndex(names)
	}
	shards := f.readHeaders(ctx, listed)
	f.sum(shards)
	owner := f.owners(shards)
	sound := all && !slices.ContainsFunc(shards, func(s shard) bool { return s.bad })
	if index != nil {
		f.compareIndex(index, shards, owner)
		if sound && index.total > 0 && index.total != f.facts.Bytes {
			f.add(idIndexSize, "%s says %d bytes, the shards hold %d", index.name, index.total, f.facts.Bytes)
		}
	}
	if len(names) > 0 && len(owner) == 0 && sound {
		f.add(idWeights, "the safetensors files hold no tensor")
	}
	if sound && len(shards) > 0 {
		f.compareConfig(shards)
	}
}

// index is what model.safetensors.index.json says.
type index struct {
	name  string
	total int64
	files map[string]string // tensor -> file
}

// readIndex returns nil where there is no index to go by, and its name where there
// is one at all.
func (f *folder) readIndex() (*index, string) {
	const usual = "model.safetensors.index.json"
	name := ""
	for _, n := range slices.Sorted(maps.Keys(f.files)) {
		if n == usual || strings.HasSuffix(n, ".safetensors.index.json") && name == "" {
			name = n
		}
	}
	if name == "" {
		return nil, ""
	}
	doc := f.readJSON(name, maxIndexBytes)
	if doc == nil {
		return nil, name
	}
	weights := table(doc, "weight_map")
	if len(weights) == 0 {
		f.add(idIndex, "%s: weight_map is not there, or empty", name)
		return nil, name
	}
	out := &index{name: name, total: number(table(doc, "metadata"), "total_size"), files: make(map[string]string, len(weights))}
	for tensor, v := range weights {
		at, _ := v.(string)
		if !fs.ValidPath(at) || at == "." {
			f.add(idIndex, "%s: tensor %s is said to be in %s, which is no file of the folder", name, quoted(tensor), quoted(fmt.Sprint(v)))
			return nil, name
		}
		out.files[tensor] = at
	}
	return out, name
}

// withoutSafetensors says what is there in their place.
func (f *folder) withoutSafetensors(indexed bool) {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if ext := path.Ext(name); ext == ".bin" && name != "training_args.bin" || ext == ".pt" || ext == ".pth" || ext == ".ckpt" {
			f.add(idPickle, "weights are there as pickles alone, like %s", quoted(name))
			return
		}
	}
	if !indexed { // else each shard is said to be missing
		f.add(idWeights, "no safetensors file is at the folder's root")
	}
}

// withoutIndex checks what the names of several files say without one, and whether
// all are there.
func (f *folder) withoutIndex(names []string) (all bool) {
	all = true
	if len(names) > 1 {
		f.add(idIndexMissing, "%d safetensors files are there, and no index that says what is in which", len(names))
	}
	there := map[string]map[int]bool{}
	of := map[string]int{}
	for _, name := range names {
		m := shardName.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		k, _ := strconv.Atoi(m[2]) // the pattern holds digits alone, few enough
		n, _ := strconv.Atoi(m[3])
		if there[m[1]] == nil {
			there[m[1]] = map[int]bool{}
		}
		there[m[1]][k], of[m[1]] = true, n
	}
	for _, stem := range slices.Sorted(maps.Keys(there)) {
		for k := 1; k <= of[stem]; k++ {
			if !there[stem][k] {
				f.add(idShard, "shard %d of %d of %s is not there", k, of[stem], quoted(stem))
				all = false
			}
		}
	}
	return all
}

// listed is what is read: the shards of the index, or whatever is there. all says
// that it is everything that ought to be.
func (f *folder) listed(names []string, x *index) (out []string, all bool) {
	if x == nil {
		return names, true
	}
	all = true
	unique := map[string]bool{}
	for _, name := range x.files {
		unique[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(unique)) {
		if _, there := f.files[name]; !there && strings.Contains(name, "/") {
			if info, err := fs.Stat(f.src.FS, name); err == nil && info.Mode().IsRegular() {
				f.files[name] = file{size: info.Size(), modified: info.ModTime()}
			}
		}
		one, there := f.files[name]
		switch {
		case !there:
			f.add(idShard, "%s, which %s names, is not there", quoted(name), x.name)
			all = false
		case one.bad: // which has been said
			all = false
		default:
			out = append(out, name)
		}
	}
	for _, name := range names {
		if !unique[name] {
			f.add(idShardUnlisted, "%s stands not in %s", quoted(name), x.name)
		}
	}
	return out, all
}

// readHeaders reads the headers of files, several at once.
func (f *folder) readHeaders(ctx context.Context, names []string) []shard {
	out := make([]shard, len(names))
	var group errgroup.Group
	group.SetLimit(readers)
	for i, name := range names {
		out[i].name = name
		if f.files[name].bad {
			out[i].bad = true
			continue
		}
		group.Go(func() error {
			if out[i].err = ctx.Err(); out[i].err == nil {
				out[i].header, out[i].err = f.readHeader(name)
			}
			return nil
		})
	}
	_ = group.Wait() // errors are with their shards
	for i := range out {
		if out[i].err != nil {
			f.failed(out[i].name, out[i].err)
			out[i].bad = true
		}
		for _, dtype := range out[i].header.Unknown {
			f.add(idDtype, "%s: tensors have the type %s, which is not known here: their sizes cannot be checked", out[i].name, quoted(dtype))
		}
	}
	return out
}

func (f *folder) readHeader(name string) (Header, error) {
	r, err := f.src.FS.Open(name)
	if err != nil {
		return Header{}, err
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return Header{}, err
	}
	h, err := ReadHeader(r, info.Size(), func(n int64) bool { return f.read.Add(n) <= MaxTotalBytes })
	if err == nil && f.tensors.Add(int64(len(h.Tensors))) > maxAllTensors {
		return Header{}, wrong(idLimit, "the folder's headers have more than %d tensors", maxAllTensors)
	}
	return h, err
}

// sum counts parameters and bytes.
func (f *folder) sum(shards []shard) {
	f.facts.Dtypes = map[string]int64{}
	for _, s := range shards {
		f.facts.Files++
		for _, t := range s.header.Tensors {
			n, ok := t.elements()
			if _, known := dtypeBits[t.Dtype]; !known && (!ok || n/8 > t.End-t.Begin) {
				n = 0 // of a type that is not known, anything may stand here
			}
			f.facts.Parameters += int64(n)
			f.facts.Bytes += int64(t.End - t.Begin)
			f.facts.Dtypes[t.Dtype] += int64(n)
		}
	}
}

// owners finds the shard of each tensor, and those that are in two.
func (f *folder) owners(shards []shard) map[string]string {
	owner := map[string]string{}
	for _, s := range shards {
		for _, t := range s.header.Tensors {
			if first, twice := owner[t.Name]; twice {
				f.add(idTensorTwice, "tensor %s is in %s and in %s", quoted(t.Name), first, s.name)
				continue
			}
			owner[t.Name] = s.name
		}
	}
	return owner
}

// compareIndex holds the index against the headers.
func (f *folder) compareIndex(x *index, shards []shard, owner map[string]string) {
	read := map[string]bool{}
	for _, s := range shards {
		read[s.name] = !s.bad
	}
	for _, tensor := range slices.Sorted(maps.Keys(x.files)) {
		name := x.files[tensor]
		if read[name] && owner[tensor] != name {
			f.add(idTensorMissing, "tensor %s is not in %s, where %s says", quoted(tensor), name, x.name)
		}
	}
	for _, tensor := range slices.Sorted(maps.Keys(owner)) {
		if _, listed := x.files[tensor]; !listed {
			f.add(idTensorUnlisted, "tensor %s of %s stands not in %s", quoted(tensor), owner[tensor], x.name)
		}
	}
}

// readPrepacked looks at weights that were prepared for an engine beside the
// checkpoint. They are an engine's own copy, and no part of the model.
func (f *folder) readPrepacked() {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if !prepackedName.MatchString(name) || f.files[name].bad {
			continue
		}
		h, err := f.readHeader(name)
		if err != nil {
			f.failed(name, err)
			continue
		}
		print := h.Metadata["source_fingerprint"]
		if print == "" || h.Metadata["format"] == "" {
			f.add(idPrepacked, "%s: its header has no format or no source_fingerprint, so nobody can tell what it was made from", name)
			continue
		}
		newer := ""
		for _, other := range slices.Sorted(maps.Keys(f.files)) {
			part := other == "config.json" || strings.HasSuffix(other, ".safetensors.index.json") || strings.HasSuffix(other, ".safetensors") && !prepackedName.MatchString(other)
			if part && newer == "" && f.files[other].modified.After(f.files[name].modified) {
				newer = other
			}
		}
		if newer != "" {
			f.add(idStale, "%s is older than %s, and is passed over where sizes and times are no longer those it was made from", name, quoted(newer))
			continue
		}
		f.at(schemas.SeverityPass, idPrepacked, "%s: format %s, made from the checkpoint with fingerprint %s", name, quoted(h.Metadata["format"]), quoted(print))
	}
}
