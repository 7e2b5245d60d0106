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

// RecordStore keeps stage records and the preimages of their keys.
type RecordStore interface {
	// PutRecord stores a record and, when it has a key, the key's preimage.
	PutRecord(ctx context.Context, rec schemas.StageRecord, preimage []byte) (schemas.Digest, error)
	// RecordsByKey lists every record of a key, oldest first.
	RecordsByKey(ctx context.Context, key schemas.Key) ([]schemas.StoredRecord, error)
	// RecordsByStage lists every record of a stage of an experiment, newest first.
	RecordsByStage(ctx context.Context, experiment, stage string) ([]schemas.StoredRecord, error)
	// Preimage returns the stored preimage of a key.
	Preimage(ctx context.Context, key schemas.Key) ([]byte, error)
}

// Sealer publishes a run.
type Sealer interface {
	// Seal writes the run's manifest and then the index. Once it returns, the run
	// is committed; before, it does not exist.
	Seal(ctx context.Context, req schemas.SealRequest) (schemas.Digest, error)
}
