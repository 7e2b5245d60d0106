package schemas

// The ways to learn how many tokens a text has for a service.
const (
	TokenizeVLLM           = "vllm"             // POST {model, prompt or messages}; also SGLang's
	TokenizeLlamaCpp       = "llama.cpp"        // POST {content, add_special}
	TokenizeLlamaCppPython = "llama-cpp-python" // POST {model, input}
	TokenizeUsage          = "usage"            // no endpoint: from the usage of a few requests of one token
)

var tokenizePaths = map[string]string{
	TokenizeVLLM: "/tokenize", TokenizeLlamaCpp: "/tokenize", TokenizeLlamaCppPython: "/extras/tokenize/count", TokenizeUsage: "",
}

// Tokenize is how a service counts the tokens of a prompt.
type Tokenize struct {
	Style string
	Path  string // of the endpoint; empty for TokenizeUsage
}

// Asking is how a service has to be asked, where that differs between servers.
type Asking struct {
	// TextPrompts says that prompts of completions are text: the service takes no
	// token ids.
	TextPrompts bool
	// MinTokens holds the service to a length by min_tokens, not by ignore_eos.
	MinTokens bool
	// Tokenize is nil for a service that cannot be asked.
	Tokenize *Tokenize
	// Key is sent with every question.
	Key APIKey
}

// AskingOf reads a service's keys.
func AskingOf(config map[string]any) Asking {
	set := Settings(config)
	a := Asking{TextPrompts: set.Text("prompts") == "text", MinTokens: set.Text("hold") == "min_tokens"}
	if set.Has(FieldAPIKey) {
		a.Key, _ = NewAPIKey(set.Text(FieldAPIKey)) // one that cannot be sent was refused before
	}
	if t := set.Table("tokenize"); t != nil {
		a.Tokenize = &Tokenize{Style: t.Text("style"), Path: t.Text("path")}
		if a.Tokenize.Path == "" {
			a.Tokenize.Path = tokenizePaths[a.Tokenize.Style]
		}
	}
	return a
}

// askingFields are the keys of a service that say how to ask it.
func askingFields() []Field {
	return []Field{
		{Name: "prompts", Type: TypeString, Enum: []string{"ids", "text"}, Doc: "what it takes as the prompt of a completion: token ids (the default), which have exact lengths, or only text"},
		{Name: "hold", Type: TypeString, Enum: []string{"ignore_eos", "min_tokens"}, Doc: "request field that holds it to an output length: ignore_eos (the default) or min_tokens"},
		{Name: "tokenize", Type: TypeTable, Doc: "how it counts the tokens of a text, so that prompts sent as text have the asked lengths", Fields: []Field{
			{Name: "style", Type: TypeString, Required: true, Enum: []string{TokenizeVLLM, TokenizeLlamaCpp, TokenizeLlamaCppPython, TokenizeUsage}, Doc: "form of the endpoint's question and answer; usage: no endpoint, learnt from the usage of a few requests"},
			{Name: "path", Type: TypeString, Doc: "path of the endpoint; default: the style's own"},
		}},
	}
}

// LengthCalibration is the account of how prompts sent as text were given their
// lengths, before the schedule was hashed. Differences are counted minus asked.
type LengthCalibration struct {
	Style string `json:"style"`
	// Calls are questions to the service, Cached those that were answered before.
	Calls  int `json:"calls"`
	Cached int `json:"cached"`
	// Counted prompts have a count of the service's own; Exact of those with an
	// asked length have it.
	Counted int `json:"counted"`
	Asked   int `json:"asked"`
	Exact   int `json:"exact"`
	// The mean absolute and the largest absolute difference, and the mean one.
	MeanAbsDiff float64 `json:"mean_abs_diff"`
	MaxAbsDiff  int     `json:"max_abs_diff"`
	MeanDiff    float64 `json:"mean_diff"`
	// PerWord and Fixed are what was learnt from usage: tokens per word, and tokens
	// that every prompt has beside its words; by model.
	PerWord map[string]float64 `json:"per_word,omitempty"`
	Fixed   map[string]float64 `json:"fixed,omitempty"`
}
