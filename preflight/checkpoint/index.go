package checkpoint

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// maxIndexBytes bounds the index; that of a large mixture of experts has 10 MiB.
const maxIndexBytes = 64 << 20

// shardName is how one file of several is named.
var shardName = regexp.MustCompile(`^(.+)-([0-9]{1,6})-of-([0-9]{1,6})\.safetensors$`)

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
