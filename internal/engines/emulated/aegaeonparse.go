package emulated

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// aegaeonCommon are the fields that both of Aegaeon's endpoints take. Any other is
// refused.
func aegaeonCommon(more form) form {
	f := form{
		"model": {kind: kindText, required: true}, "max_tokens": {kind: kindInt, null: true, min: atLeast(1)},
		"stream": {kind: kindBool}, "stream_options": {kind: kindTable, null: true}, "stop": {kind: kindAny, null: true},
		"n": {kind: kindInt}, "temperature": {kind: kindNumber, null: true}, "top_p": {kind: kindNumber, null: true},
		"top_k": {kind: kindInt, null: true}, "min_p": {kind: kindNumber, null: true},
		"frequency_penalty": {kind: kindNumber, null: true}, "presence_penalty": {kind: kindNumber, null: true}, "repetition_penalty": {kind: kindNumber, null: true},
		"seed": {kind: kindInt, null: true}, "logit_bias": {kind: kindTable, null: true}, "use_beam_search": {kind: kindBool},
		"length_penalty": {kind: kindNumber}, "stop_token_ids": {kind: kindList, null: true}, "include_stop_str_in_output": {kind: kindBool},
		"ignore_eos": {kind: kindBool}, "min_tokens": {kind: kindInt, min: atLeast(0)}, "skip_special_tokens": {kind: kindBool},
		"spaces_between_special_tokens": {kind: kindBool}, "truncate_prompt_tokens": {kind: kindInt, null: true, min: atLeast(-1)},
		"truncation_side": {kind: kindText, null: true}, "add_special_tokens": {kind: kindBool}, "return_token_ids": {kind: kindBool},
		"priority": {kind: kindInt}, "request_id": {kind: kindText, null: true}, "user": {kind: kindText, null: true},
	}
	for name, spec := range more {
		f[name] = spec
	}
	return f
}

var aegaeonChat = aegaeonCommon(form{
	"messages": {kind: kindList, required: true}, "max_completion_tokens": {kind: kindInt, null: true, min: atLeast(1)},
	"add_generation_prompt": {kind: kindBool}, "continue_final_message": {kind: kindBool}, "tools": {kind: kindList, null: true},
	"tool_choice": {kind: kindAny, null: true}, "parallel_tool_calls": {kind: kindBool, null: true},
	"logprobs": {kind: kindBool, null: true}, "top_logprobs": {kind: kindInt, null: true}, "mm_processor_kwargs": {kind: kindTable, null: true},
})

var aegaeonCompletion = aegaeonCommon(form{
	"prompt": {kind: kindAny, required: true}, "echo": {kind: kindBool}, "logprobs": {kind: kindInt, null: true},
})

// greedyOnly are the only values that these fields may have, beside null.
var greedyOnly = []struct {
	name string
	only any
}{
	{"n", 1.0}, {"temperature", 0.0}, {"top_p", 1.0}, {"top_k", 1.0}, {"min_p", 0.0}, {"frequency_penalty", 0.0}, {"presence_penalty", 0.0},
	{"repetition_penalty", 1.0}, {"use_beam_search", false}, {"length_penalty", 1.0}, {"priority", 0.0}, {"top_logprobs", 0.0},
}

func parseAegaeon(s *server, body []byte, chat bool) (*request, *apiError) {
	f := aegaeonCompletion
	if chat {
		f = aegaeonChat
	}
	in, refused := f.read(body, false)
	if refused != nil {
		return nil, refused
	}
	if refused := greedy(in, chat); refused != nil {
		return nil, refused
	}
	m, refused := s.aegaeon.routable(in["model"].(string))
	if refused != nil {
		return nil, refused
	}
	r := &request{chat: chat, model: m}
	if refused := r.readAegaeon(s, body, in); refused != nil {
		return nil, refused
	}
	return r, s.aegaeon.admit(r)
}

// greedy refuses what asks for more than greedy generation of one answer.
func greedy(in map[string]any, chat bool) *apiError {
	for _, f := range greedyOnly {
		if v, there := in[f.name]; there && v != nil && v != f.only {
			return badRequest(f.name, fmt.Sprintf("only %s = %v is supported", f.name, f.only))
		}
	}
	if bias, _ := in["logit_bias"].(map[string]any); len(bias) > 0 {
		return badRequest("logit_bias", "logit_bias is not supported")
	}
	if v := in["logprobs"]; v != nil && !(chat && v == false) {
		return badRequest("logprobs", "logprobs are not supported")
	}
	if side, there := in["truncation_side"].(string); there && side != "left" && side != "right" {
		return badRequest("truncation_side", "truncation_side: want left or right")
	}
	if truth(in, "continue_final_message", false) && truth(in, "add_generation_prompt", true) {
		return badRequest("continue_final_message", "continue_final_message wants add_generation_prompt to be false")
	}
	return nil
}

func truth(in map[string]any, name string, otherwise bool) bool {
	if v, ok := in[name].(bool); ok {
		return v
	}
	return otherwise
}

// readAegaeon fills a request in from a body that has passed its form.
func (r *request) readAegaeon(s *server, raw []byte, in map[string]any) *apiError {
	var b body
	fields := map[string]any{}
	for name, v := range in { // what is checked elsewhere, or has no effect, stays out
		switch name {
		case "model", "prompt", "messages", "max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "stream", "stream_options", "return_token_ids", "request_id":
			if v != nil {
				fields[name] = v
			}
		}
	}
	if err := json.Unmarshal(encode(fields), &b); err != nil {
		return unprocessable(invalid{Type: "model_type", Loc: []any{"body"}, Msg: err.Error(), Input: json.RawMessage(raw)})
	}
	r.clientID, r.ignoreEOS, r.stream, r.includeUsage = b.RequestID, b.IgnoreEOS, b.Stream, b.StreamOptions.IncludeUsage
	r.returnIDs, r.minTokens, r.echo = b.ReturnTokenIDs, b.MinTokens, truth(in, "echo", false)
	if r.chat {
		if e := r.readMessages(&b); e != nil {
			return e
		}
		var text []string
		for _, m := range b.Messages {
			t, _ := contentText(m.Content)
			text = append(text, t)
		}
		r.promptText = strings.Join(text, " ")
	} else if e := r.readPrompt(&b); e != nil {
		return e
	}
	if r.promptIDs == nil {
		if !r.chat {
			_ = json.Unmarshal(b.Prompt, &r.promptText) // readPrompt has read it
		}
		r.promptIDs = s.tokens.ids(r.promptText)
	} else {
		r.promptText = s.tokens.text(r.promptIDs)
	}
	r.truncate(in)
	if e := r.readStops(in); e != nil {
		return e
	}
	return r.budgetAegaeon(&b)
}

// truncate cuts the prompt to a stated length; its end stays unless told otherwise.
func (r *request) truncate(in map[string]any) {
	limit, ok := in["truncate_prompt_tokens"].(float64)
	n := int(limit)
	if n == -1 {
		n = r.model.MaxModelLen - 1
	}
	if !ok || n < 1 || n >= len(r.promptIDs) {
		return
	}
	if in["truncation_side"] == "right" {
		r.promptIDs = r.promptIDs[:n]
	} else {
		r.promptIDs = r.promptIDs[len(r.promptIDs)-n:]
	}
	r.promptTokens, r.promptBytes = n, append([]byte("ids\x00"), encode(r.promptIDs)...)
}

func (r *request) readStops(in map[string]any) *apiError {
	switch v := in["stop"].(type) {
	case nil:
	case string:
		r.stops = []string{v}
	case []any:
		for i, e := range v {
			text, ok := e.(string)
			if !ok {
				return unprocessable(invalid{Type: "string_type", Loc: []any{"body", "stop", i}, Msg: "Input should be a valid string", Input: e})
			}
			r.stops = append(r.stops, text)
		}
	default:
		return unprocessable(invalid{Type: "string_type", Loc: []any{"body", "stop"}, Msg: "Input should be a valid string or list", Input: v})
	}
	for _, stop := range r.stops {
		if stop == "" {
			return badRequest("stop", "stop: an empty string stops nothing")
		}
	}
	r.keepStop = truth(in, "include_stop_str_in_output", false)
	var refused *apiError
	r.stopIDs, refused = tokenIDs(in["stop_token_ids"], "stop_token_ids")
	return refused
}

// budgetAegaeon settles how many tokens may be generated: no more than there is
// room for, whatever was asked.
func (r *request) budgetAegaeon(in *body) *apiError {
	limit, name := in.MaxTokens, "max_tokens"
	if r.chat && in.MaxCompletionTokens != nil {
		if limit != nil && *limit != *in.MaxCompletionTokens {
			return badRequest("max_completion_tokens", "max_completion_tokens and max_tokens differ")
		}
		limit, name = in.MaxCompletionTokens, "max_completion_tokens"
	}
	room := r.model.MaxModelLen - r.promptTokens
	if room < 1 {
		return tooLong(r, fmt.Sprintf("the prompt has %d tokens", r.promptTokens))
	}
	asked := defaultCompletionTokens
	if limit != nil {
		asked = *limit
	} else if r.chat {
		asked = defaultChatTokens
	}
	if asked > maxOutput {
		return badRequest(name, fmt.Sprintf("%s: more than %d tokens are not emulated", name, maxOutput))
	}
	if r.minTokens > asked {
		return badRequest("min_tokens", fmt.Sprintf("min_tokens: want 0 to %d", asked))
	}
	r.maxTokens = min(asked, room)
	r.minTokens = min(r.minTokens, r.maxTokens)
	return nil
}

var errNotReady = &apiError{status: http.StatusServiceUnavailable, Type: "service_unavailable", Message: "no replica of the model is ready"}
