package emulated

import (
	"encoding/json"
	"net/http"
)

// apiError is an error as OpenAI's API words it.
type apiError struct {
	status  int
	list    []invalid // of a body that is not of the form wanted
	Message string    `json:"message"`
	Type    string    `json:"type"`
	Param   *string   `json:"param"`
	Code    *string   `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

func badRequest(param, message string) *apiError {
	e := &apiError{status: http.StatusBadRequest, Type: "invalid_request_error", Message: message}
	if param != "" {
		e.Param = &param
	}
	return e
}

func (e *apiError) withCode(status int, code string) *apiError {
	e.status, e.Code = status, &code
	return e
}

func writeError(w http.ResponseWriter, e *apiError) {
	writeJSON(w, e.status, map[string]any{"error": e})
}

// writeJSON answers with v. A write error means that the client has gone.
func writeJSON(w http.ResponseWriter, status int, v any) {
	b := encode(v)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// encode encodes values of this package's own, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("emulated: encode: " + err.Error())
	}
	return b
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

type message struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

// delta has a pointer so that the role chunk and the last one can tell empty
// content from none.
type delta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type choice struct {
	Index          int      `json:"index"`
	Message        *message `json:"message,omitempty"`
	Delta          *delta   `json:"delta,omitempty"`
	Text           *string  `json:"text,omitempty"`
	Logprobs       *int     `json:"logprobs"` // always null
	FinishReason   *string  `json:"finish_reason"`
	TokenIDs       []int    `json:"token_ids,omitempty"`
	PromptTokenIDs []int    `json:"prompt_token_ids,omitempty"`
}

// answer is a whole response or one event of a stream.
type answer struct {
	ID             string   `json:"id"`
	Object         string   `json:"object"`
	Created        int64    `json:"created"` // Unix time, s
	Model          string   `json:"model"`
	Choices        []choice `json:"choices"`
	Usage          *usage   `json:"usage,omitempty"`
	PromptTokenIDs []int    `json:"prompt_token_ids,omitempty"`
}
