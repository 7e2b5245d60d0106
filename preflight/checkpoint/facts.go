package checkpoint

// Facts are what a checkpoint's configuration and headers say of the model, as far
// as they say it: 0 and "" are not told. Budgets and limits are computed from them.
type Facts struct {
	Architecture string `json:"architecture,omitempty"` // the first that config.json names
	ModelType    string `json:"model_type,omitempty"`   // of the language model
	Quantization string `json:"quantization,omitempty"` // the method that config.json names
	Files        int    `json:"files"`                  // of weights
	// Parameters is the sum of the elements of all tensors, and Bytes of what they take.
	Parameters int64 `json:"parameters"`
	Bytes      int64 `json:"bytes"`
	// Dtypes holds the elements by type.
	Dtypes map[string]int64 `json:"dtypes,omitempty"`
	// ContextLength is the longest sequence in tokens: the smallest that config.json
	// names.
	ContextLength int64 `json:"context_length,omitempty"`
	Vocabulary    int64 `json:"vocabulary,omitempty"`
	Hidden        int64 `json:"hidden,omitempty"`
	Layers        int64 `json:"layers,omitempty"`
	Heads         int64 `json:"heads,omitempty"`
	KVHeads       int64 `json:"kv_heads,omitempty"`
	HeadDim       int64 `json:"head_dim,omitempty"`
	// FullAttentionLayers are the layers whose keys and values grow with the whole
	// sequence, SlidingLayers those that keep SlidingWindow tokens of them; other
	// layers have none. Without a list in config.json, all layers are full.
	FullAttentionLayers int64 `json:"full_attention_layers,omitempty"`
	SlidingLayers       int64 `json:"sliding_layers,omitempty"`
	SlidingWindow       int64 `json:"sliding_window,omitempty"`
}
