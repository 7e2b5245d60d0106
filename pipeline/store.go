package pipeline

import (
	"context"

	"assay/schemas"
)

// Store is what execution needs of an archive. Every method that stores returns
// only after its bytes are durable.
type Store interface {
	TreeStore
	RecordStore
	Sealer
}

// TreeStore keeps folders by content.
type TreeStore interface {
	// PutTree stores everything below dir and returns the tree with its digest,
	// and the digest of the blob that holds the tree document.
	PutTree(ctx context.Context, dir string) (schemas.Tree, schemas.Digest, error)
	// Materialize writes the part of a stored tree below sub ("" for all) to dir,
	// which must not exist, checking every byte.
	Materialize(ctx context.Context, treeBlob schemas.Digest, sub, dir string) error
	// CheckTree reads every blob of a stored tree and checks its digest.
	CheckTree(ctx context.Context, treeBlob schemas.Digest) error
}

// StoredRecord is a stage record with the digest of its blob and whether the run
// that made it is sealed (records of unsealed runs serve only that run).
type StoredRecord struct {
	Digest schemas.Digest
	Record schemas.StageRecord
	Sealed bool
}

// RecordStore keeps stage records and the preimages of their keys.
type RecordStore interface {
	// PutRecord stores a record and, when it has a key, the key's preimage.
	PutRecord(ctx context.Context, rec schemas.StageRecord, preimage []byte) (schemas.Digest, error)
	// RecordsByKey lists every record of a key, oldest first.
	RecordsByKey(ctx context.Context, key schemas.Key) ([]StoredRecord, error)
	// RecordsByStage lists every record of a stage of an experiment, newest first.
	RecordsByStage(ctx context.Context, experiment, stage string) ([]StoredRecord, error)
	// Preimage returns the stored preimage of a key.
	Preimage(ctx context.Context, key schemas.Key) ([]byte, error)
}

// SealRequest is everything a run's manifest is made of.
type SealRequest struct {
	Run        schemas.Run // Report and FileList are filled in by Seal
	Experiment []byte      // canonical JSON of the effective experiment
	Source     []byte      // the experiment file as written
	// Report makes report.json once the file list is known; it is not called
	// again, and it is validated before it is stored.
	Report func(files schemas.FileSummary) (schemas.Report, error)
	// Tag names the run; "" for none.
	Tag string
}

// Sealer publishes a run.
type Sealer interface {
	// Seal writes the run's manifest and then the index. Once it returns, the run
	// is committed; before, it does not exist.
	Seal(ctx context.Context, req SealRequest) (schemas.Digest, error)
}
