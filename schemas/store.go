package schemas

// StoredRecord is a stage record with the digest of its blob and whether the run
// that made it is sealed (records of unsealed runs serve only that run).
type StoredRecord struct {
	Digest Digest
	Record StageRecord
	Sealed bool
}

// SealRequest is everything a run's manifest is made of.
type SealRequest struct {
	Run        Run    // Report and FileList are filled in by Seal
	Experiment []byte // canonical JSON of the effective experiment
	Source     []byte // the experiment file as written
	// Report makes report.json once the file list is known; it is not called
	// again, and it is validated before it is stored.
	Report func(files FileSummary) (Report, error)
	// Tag names the run; "" for none.
	Tag string
}
