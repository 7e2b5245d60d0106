package archive

import "github.com/google/go-containerregistry/pkg/v1/types"

// FormatVersion is the version of the store's own files (assay/format.json).
const FormatVersion = 1

// Media types of a run's manifest, its config and its layers.
const (
	ArtifactType            = "application/vnd.assay.run.v1+json"
	MediaConfig             = "application/vnd.assay.run.config.v1+json"
	MediaReport             = "application/vnd.assay.report.v1+json"
	MediaExperiment         = "application/vnd.assay.experiment.v1+json"
	MediaSource             = "application/vnd.assay.experiment.source.v1+toml"
	MediaFiles              = "application/vnd.assay.files.v1+json"
	MediaRecord             = "application/vnd.assay.stage-record.v1+json"
	MediaPreimage           = "application/vnd.assay.key.v1+json"
	MediaTree               = "application/vnd.assay.tree.v1+json"
	MediaPack               = "application/vnd.assay.pack.v1.tar+zstd"
	MediaPart               = "application/vnd.assay.part.v1"
	MediaPartZstd           = "application/vnd.assay.part.v1+zstd"
	MediaDocuments          = "application/vnd.assay.documents.v1.tar+zstd"
	mediaManifest           = string(types.OCIManifestSchema1)
	annotationTag           = "org.opencontainers.image.ref.name"
	annotationCreated       = "org.opencontainers.image.created"
	annotationTitle         = "org.opencontainers.image.title"
	annotationRun           = "vnd.assay.run.id"
	annotationExperiment    = "vnd.assay.run.experiment"
	annotationStatus        = "vnd.assay.run.status"
	annotationSequence      = "vnd.assay.run.sequence"
	annotationContentDigest = "vnd.assay.content.digest"
	annotationContentSize   = "vnd.assay.content.size"
)

// Limits of the format. A reader refuses what goes beyond them.
const (
	largeFileBytes   = 4 << 20   // from here on a file is a blob of its own
	partBytes        = 1 << 30   // longest part of a large file, uncompressed
	packTargetBytes  = 16 << 20  // aim of one pack, uncompressed
	packLimitBytes   = 32 << 20  // longest pack, uncompressed
	maxManifestBytes = 4 << 20   //
	maxIndexBytes    = 64 << 20  //
	maxDocBytes      = 256 << 20 // a JSON document
	maxTreeDocBytes  = 1 << 30   // a tree document or file list: they are read as a stream
	maxLayers        = 2000
	maxEntries       = 1 << 20 // of one tree or file list
	maxPathBytes     = 4096
	maxTreeBytes     = int64(1) << 46 // of all files of a tree together
	maxLinkDepth     = 40
	zstdWindowBytes  = 4 << 20
	zstdMemoryBytes  = 64 << 20 // a decoder's limit for one frame's window
)

// Limits a writer keeps to; tests lower them.
var (
	partLimit  int64 = partBytes
	layerLimit       = maxLayers
)

// Names at the top of an extracted run. File list paths cannot begin with them.
const (
	nameManifest   = "assay-manifest.json"
	nameConfig     = "assay-run.json"
	nameFiles      = "assay-files.json"
	nameReport     = "report.json"
	nameExperiment = "experiment.json"
	nameSource     = "experiment.toml"
	dirRecords     = "assay-records"
	dirPreimages   = "assay-preimages"
	dirTrees       = "assay-trees"
)
