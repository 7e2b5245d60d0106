package foundry

import (
	"slices"

	"assay/internal/foundry"
	"assay/preflight"
	"assay/schemas"
)

// prefix begins every ID.
const prefix = "foundry."

const (
	ruleWhole  = "an archive is what was saved, whole, and its files agree"
	remedyCopy = "copy the archive again from where it is whole, or save it anew into a new folder"
	remedySave = "save a new archive, with this configuration in mode save and a request to every model"
)

// Catalog lists the checks of this package.
func Catalog() []preflight.Entry { return slices.Concat(wholeEntries(), wantedEntries()) }

func entry(id string, severity schemas.Severity, checks, remedy string, pitfalls ...int) preflight.Entry {
	return preflight.Entry{ID: prefix + id, Subject: "archive", Severity: severity, Checks: checks, Remedy: remedy, When: preflight.Before, Pitfalls: pitfalls}
}

const bad, doubtful, unknown = schemas.SeverityError, schemas.SeverityWarning, schemas.SeverityUnknown

// wholeEntries are what has to hold whatever the archive is for.
func wholeEntries() []preflight.Entry {
	list := []preflight.Entry{
		entry(foundry.Unreadable, unknown, "every file can be read, and is not being written to", "give this user the right to read it, and wait until nothing writes to it", 55),
		entry(foundry.Limit, bad, "files and folders are of sizes that real archives have", remedyCopy, 55),
		entry(foundry.Link, bad, "symbolic links lead to files inside of the folder", "replace the link by the file that is meant", 55),
		entry(foundry.Special, bad, "there are files and folders only", "remove it", 55),
		entry(foundry.Empty, bad, "no file is empty", remedyCopy, 55),
		entry(foundry.Pair, bad, "every graph is there as .json and as .cugraph", remedyCopy, 50, 55),
		entry(foundry.BadJSON, bad, "every .json is a JSON document, with every key once and not too deep", remedyCopy, 55),
		entry(foundry.BadGraph, bad, "the JSON form of every graph can be read: nodes, dependencies between them, kernels, allocations", remedyCopy, 55),
		entry(foundry.BadPacked, bad, "every .cugraph has the magic and version, sections inside of the file and apart, and tables as long as its counts", remedyCopy, 55),
		entry(foundry.Differs, bad, "both forms of a graph have the same counts, topology and allocations", remedyCopy, 55),
		entry(foundry.BadManifest, bad, "every rank has a readable "+foundry.ManifestFile, remedyCopy, 50, 55),
		entry(foundry.BadGroup, bad, "every graph is in exactly one group of the manifest, every member is there, and the template is the first", remedyCopy, 50, 55),
		entry(foundry.BadImages, bad, "every rank has a readable "+foundry.ImagesFile, remedyCopy, 55),
		entry(foundry.BadEntries, bad, "every rank has a readable "+foundry.EntriesFile, remedyCopy, 55),
		entry(foundry.BadBinaries, bad, "packed images and entry points name the same binaries in the same order", remedyCopy, 55),
		entry(foundry.NoKernel, bad, "every kernel that a graph launches is listed in the binary that it names", remedyCopy, 55),
		entry(foundry.BadOffset, bad, foundry.OffsetFile+" can be read, and its offset lies in the region", remedyCopy, 51, 55),
		entry(foundry.BadState, bad, foundry.StateFile+" can be read", remedyCopy, 55),
		entry(foundry.StateDiffers, doubtful, "the offset in "+foundry.StateFile+" is that of a rank", "save anew if the files are of different saves", 51),
		entry(foundry.BadCatalog, bad, "the catalog of a model can be read, and is of this version", remedySave, 51),
		entry(foundry.Missing, bad, "every file of the inventory is there", remedyCopy, 50),
		entry(foundry.Changed, bad, "every file has the size and SHA-256 of the inventory", remedyCopy, 55),
		entry(foundry.Extra, bad, "no file is there that the inventory does not list", "remove it: nothing is written to an archive once it is saved", 53),
	}
	for i := range list {
		list[i].Rule = ruleWhole
	}
	return list
}

// wantedEntries are what has to hold for what a configuration registers.
func wantedEntries() []preflight.Entry {
	return []preflight.Entry{
		entry("save-folder", bad, "the folder is new or empty where graphs are saved", "name a new folder as archive_dir", 53),
		entry("load-folder", bad, "the folder is there and not empty where graphs are loaded", "save graphs first, or name the folder that they were saved to", 53),
		entry("layout", unknown, "the folder is of a form that is known", "name the folder that holds the archives of models; --allow-unknown foundry.layout goes on without", 50),
		entry("inventory", unknown, "the files that were saved are recorded", "load from a validated run, whose report lists them", 51, 55),
		entry("model-missing", bad, "every model that is registered has an archive; unknown where folders do not tell models", remedySave+"; or leave the model out", 50),
		entry("rank-missing", bad, "every decode rank has its folder; unknown where folders do not tell ranks", remedySave, 50),
		entry("batch-missing", bad, "every batch size has a graph; unknown where names do not tell it", remedySave, 50, 52),
		entry("registered", unknown, "it is known what will be loaded: models, ranks, batch sizes", "give the configuration that the graphs are loaded with", 50),
		entry("saved-with", bad, "memory layout, bucket and batch sizes are those of the save; unknown where none are recorded", "load with the configuration that was saved with, or save anew", 51, 52),
		entry("alignment", bad, "base, region and scratch are multiples of 2 MiB above 0, and scratch is less than the region", "round them to multiples of 2097152", 54),
		entry("address", bad, "base addresses and allocations of all graphs lie in the region; reservations may lie above; unknown where there is no region", "load with the base_address and region_size_bytes that was saved with", 51, 55),
		entry("gpu-memory", bad, "what was allocated without scratch fits the GPU's memory, where that is known", "load on a GPU with as much memory as was saved on", 22, 51),
	}
}

func remedyOf(id string) string {
	for _, e := range Catalog() {
		if e.ID == id {
			return e.Remedy
		}
	}
	return ""
}
