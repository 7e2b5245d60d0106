package loadgen

// Tap is told of answers while they arrive: what a record does not keep. Its
// functions may be nil; they are called from several goroutines, between the reads
// of a stream, and so must be quick.
type Tap struct {
	// Headers is called when the head of an answer was read, whatever its status. What
	// follows the head may have come with it, and have an earlier stamp of the kernel.
	Headers func(index int, atNs int64)
	// Text is called with each piece of visible text, which is valid until it returns.
	Text func(index int, text []byte)
}

func (t *Tap) headers(index int, atNs int64) {
	if t != nil && t.Headers != nil {
		t.Headers(index, atNs)
	}
}

func (t *Tap) text(index int, text []byte) {
	if t != nil && t.Text != nil {
		t.Text(index, text)
	}
}
