package loadgen

// Where the stamps of a record come from.
const (
	// StampKernel is the time at which the kernel got the bytes.
	StampKernel = "kernel"
	// StampUser is the time at which a read of them returned.
	StampUser = "user"
)
