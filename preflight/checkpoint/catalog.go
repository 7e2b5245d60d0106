package checkpoint

import (
	"sync"

	"assay/preflight"
	"assay/schemas"
)

// IDs of the findings.
const (
	idWhole           = "checkpoint.whole"
	idUnreadable      = "checkpoint.unreadable"
	idFolder          = "checkpoint.folder"
	idDangling        = "checkpoint.dangling"
	idPointer         = "checkpoint.lfs-pointer"
	idEmpty           = "checkpoint.empty-file"
	idIncomplete      = "checkpoint.incomplete"
	idLimit           = "checkpoint.limit"
	idConfig          = "checkpoint.config"
	idJSON            = "checkpoint.json"
	idArchitecture    = "checkpoint.architecture"
	idContext         = "checkpoint.context"
	idTokenizer       = "checkpoint.tokenizer"
	idTokenizerConfig = "checkpoint.tokenizer-config"
	idTemplate        = "checkpoint.chat-template"
	idGeneration      = "checkpoint.generation-config"
	idSpecial         = "checkpoint.special-tokens"
	idWeights         = "checkpoint.weights-missing"
	idPickle          = "checkpoint.pickle"
	idIndexMissing    = "checkpoint.index-missing"
	idIndex           = "checkpoint.index"
	idIndexSize       = "checkpoint.index-size"
	idShard           = "checkpoint.shard-missing"
	idShardUnlisted   = "checkpoint.shard-unlisted"
	idHeader          = "checkpoint.header"
	idTruncated       = "checkpoint.truncated"
	idTensor          = "checkpoint.tensor-size"
	idOffsets         = "checkpoint.tensor-offsets"
	idDtype           = "checkpoint.tensor-type"
	idTensorMissing   = "checkpoint.tensor-missing"
	idTensorUnlisted  = "checkpoint.tensor-unlisted"
	idTensorTwice     = "checkpoint.tensor-duplicate"
	idLayers          = "checkpoint.layers"
	idHeads           = "checkpoint.heads"
	idParams          = "checkpoint.params"
	idPrepacked       = "checkpoint.prepacked"
	idStale           = "checkpoint.prepacked-stale"
	idFingerprint     = "checkpoint.fingerprint"
)

const (
	again    = "fetch the file again"
	complete = "fetch the checkpoint again, and wait until it is all there"
	whole    = "a checkpoint is whole"
	onStory  = "configuration, index and weights belong to each other"
)

// Catalog lists the checks.
func Catalog() []preflight.Entry {
	list := append(append(fileEntries(), configEntries()...), weightEntries()...)
	for i := range list {
		list[i].Subject, list[i].When = "checkpoint", preflight.Before
	}
	return list
}

func fileEntries() []preflight.Entry {
	const e, u, w = schemas.SeverityError, schemas.SeverityUnknown, schemas.SeverityWarning
	return []preflight.Entry{
		{ID: idWhole, Severity: schemas.SeverityPass, Checks: "everything below holds, as far as it refuses", Rule: whole},
		{ID: idUnreadable, Severity: u, Checks: "files of the checkpoint can be read", Remedy: "check the rights of the files and the file system they lie on", Rule: whole},
		{ID: idFolder, Severity: e, Checks: "the folder is that of one revision, not that of a model cache", Remedy: "name the folder of a revision, below snapshots", Pitfalls: []int{27, 30}},
		{ID: idDangling, Severity: e, Checks: "every link leads to a file", Remedy: "fetch the model into its cache again, or mount the cache where the links lead", Pitfalls: []int{27}},
		{ID: idPointer, Severity: e, Checks: "no file is a pointer of Git LFS whose content was never fetched", Remedy: "`git lfs pull` in the folder fetches what it points at", Pitfalls: []int{27}},
		{ID: idEmpty, Severity: e, Checks: "no file that is needed has zero bytes", Remedy: again, Pitfalls: []int{27}},
		{ID: idIncomplete, Severity: e, Checks: "no download is under way or was broken off; a warning where the file is there nevertheless", Remedy: complete, Pitfalls: []int{27}},
		{ID: idLimit, Severity: e, Checks: "numbers and lengths are within what real checkpoints have", Remedy: "look where the checkpoint comes from: it is damaged, or made to exhaust who reads it", Rule: "nothing is read without a bound"},
	}
}

func configEntries() []preflight.Entry {
	const e, w = schemas.SeverityError, schemas.SeverityWarning
	return []preflight.Entry{
		{ID: idConfig, Severity: e, Checks: "config.json is there", Remedy: "name the folder that holds the checkpoint's config.json, or fetch it", Pitfalls: []int{28}},
		{ID: idJSON, Severity: e, Checks: "configuration files are JSON objects, not too large and not too deep", Remedy: again, Pitfalls: []int{28}},
		{ID: idArchitecture, Severity: e, Checks: "config.json names an architecture; a warning where it names a model type only", Remedy: "take the config.json of the checkpoint as published", Rule: "an engine chooses its code by it"},
		{ID: idContext, Severity: w, Checks: "config.json says how long a sequence may be", Remedy: "set the service's longest sequence", Rule: "a workload is held against it"},
		{ID: idTokenizer, Severity: e, Checks: "the tokenizer's files are there", Remedy: "fetch the tokenizer of this checkpoint", Pitfalls: []int{28}},
		{ID: idTokenizerConfig, Severity: w, Checks: "tokenizer_config.json is there", Remedy: "fetch it: special tokens stand in it", Pitfalls: []int{28}},
		{ID: idTemplate, Severity: w, Checks: "a chat template is there", Remedy: "fetch it, or send completions alone", Pitfalls: []int{28}},
		{ID: idGeneration, Severity: w, Checks: "generation_config.json is there", Remedy: "fetch it: what ends a text stands in it", Pitfalls: []int{28}},
		{ID: idSpecial, Severity: e, Checks: "a token that ends texts is named, and is one of the vocabulary; a warning where none is named", Remedy: "take the configuration files of this checkpoint", Pitfalls: []int{28}},
	}
}

func weightEntries() []preflight.Entry {
	const e, w, p = schemas.SeverityError, schemas.SeverityWarning, schemas.SeverityPass
	missing := []int{27}
	return []preflight.Entry{
		{ID: idWeights, Severity: e, Checks: "there are safetensors files at the folder's root, and tensors in them", Remedy: "name the folder that holds the weights", Pitfalls: missing},
		{ID: idPickle, Severity: e, Checks: "weights are not pickles alone", Remedy: "take or make a safetensors version of the checkpoint", Pitfalls: missing},
		{ID: idIndexMissing, Severity: e, Checks: "several shards have an index", Remedy: "fetch model.safetensors.index.json", Pitfalls: missing},
		{ID: idIndex, Severity: e, Checks: "the index is a table from tensors to files of the folder", Remedy: again, Pitfalls: missing},
		{ID: idIndexSize, Severity: w, Checks: "the shards together have the size that the index says", Remedy: "compare with the checkpoint as published", Rule: onStory},
		{ID: idShard, Severity: e, Checks: "every shard is there", Remedy: complete, Pitfalls: missing},
		{ID: idShardUnlisted, Severity: w, Checks: "every safetensors file stands in the index", Remedy: "remove it if it is not of this checkpoint: some loaders take every file", Rule: onStory},
		{ID: idHeader, Severity: e, Checks: "the header of every safetensors file is of the format's one form", Remedy: again, Pitfalls: missing},
		{ID: idTruncated, Severity: e, Checks: "every safetensors file is as long as its header says", Remedy: again, Pitfalls: missing},
		{ID: idTensor, Severity: e, Checks: "a tensor's bytes are its shape times its type", Remedy: again, Rule: whole},
		{ID: idOffsets, Severity: e, Checks: "tensors cover their file's data, each byte once", Remedy: again, Rule: whole},
		{ID: idDtype, Severity: w, Checks: "tensors are of known types; the size of others cannot be checked", Remedy: "see that the engine knows them", Rule: whole},
		{ID: idTensorMissing, Severity: e, Checks: "every tensor of the index is in its shard", Remedy: "fetch shard and index of one revision", Rule: onStory},
		{ID: idTensorUnlisted, Severity: w, Checks: "every tensor of a shard stands in the index", Remedy: "fetch shard and index of one revision", Rule: onStory},
		{ID: idTensorTwice, Severity: e, Checks: "no tensor is in two shards", Remedy: "remove the file that is not of this checkpoint", Rule: onStory},
		{ID: idLayers, Severity: e, Checks: "there are weights for as many layers as config.json says", Remedy: "take weights and config.json of one checkpoint", Rule: onStory},
		{ID: idHeads, Severity: e, Checks: "the attention's weights have the heads that config.json says", Remedy: "take weights and config.json of one checkpoint", Rule: onStory},
		{ID: idParams, Severity: e, Checks: "a number of parameters that is given is that of the headers, in its unit of 2^30", Remedy: "leave params out, or give the number of parameters divided by 2^30", Pitfalls: []int{26}},
		{ID: idPrepacked, Severity: w, Checks: "prepacked weights say which checkpoint they were made from", Remedy: "prepack again", Rule: "load times are of the weights that are meant"},
		{ID: idStale, Severity: w, Checks: "prepacked weights are no older than the checkpoint beside them", Remedy: "prepack again: older ones are passed over, and loading takes longer", Rule: "load times are of the weights that are meant"},
		{ID: idFingerprint, Severity: e, Checks: "the checkpoint has the fingerprint that the experiment pins; unknown where it cannot be computed", Remedy: "use the checkpoint that is meant, or pin this one", Rule: "a result is of the weights that it names"},
	}
}

// byID is the catalog by ID.
var byID = sync.OnceValue(func() map[string]preflight.Entry {
	out := map[string]preflight.Entry{}
	for _, e := range Catalog() {
		out[e.ID] = e
	}
	return out
})

func entryOf(id string) preflight.Entry { return byID()[id] }
