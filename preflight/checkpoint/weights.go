package checkpoint

import (
	"context"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// readers bounds how many headers are read at once: each is a round trip where the
// folder lies on a network file system.
const readers = 8

// shard is one file of weights and what its header says.
type shard struct {
	name   string
	header Header
	err    error
	bad    bool // nothing can be said of its tensors
}

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
