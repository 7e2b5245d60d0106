package emulated

import (
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxRemembered bounds how many words a tokenizer can spell again.
const maxRemembered = 100_000

// tokenizer makes one token of each word between white space. The words that the
// engine answers with have ids of their own; any other has one by its hash, and is
// spelt again as long as it is remembered.
type tokenizer struct {
	mu   sync.Mutex
	seen map[int]string
}

func (k *tokenizer) ids(text string) []int {
	out := []int{}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, word := range strings.Fields(text) {
		id := slices.Index(words, word)
		if id < 0 {
			h := fnv.New32a()
			h.Write([]byte(word))
			id = len(words) + int(h.Sum32()%uint32(vocabulary-len(words)))
			if k.seen == nil {
				k.seen = map[int]string{}
			}
			if _, known := k.seen[id]; known || len(k.seen) < maxRemembered {
				k.seen[id] = word
			}
		}
		out = append(out, id)
	}
	return out
}

func (k *tokenizer) text(ids []int) string {
	out := make([]string, len(ids))
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, id := range ids {
		word, known := k.seen[id]
		if !known {
			word = words[id%len(words)]
		}
		out[i] = word
	}
	return strings.Join(out, " ")
}

// tokenIDs reads a list of ids, which has passed kindList.
func tokenIDs(v any, field string) ([]int, *apiError) {
	list, _ := v.([]any)
	out := make([]int, len(list))
	for i, e := range list {
		n, ok := e.(float64)
		if !ok || !kindInt.is(e) || n < 0 || n > maxTokenID {
			return nil, unprocessable(invalid{Type: "int_type", Loc: []any{"body", field, i}, Msg: "Input should be a valid integer", Input: e})
		}
		out[i] = int(n)
	}
	return out, nil
}

// post is a handler of a POST whose body has a form.
func (s *server) post(f form, lenient bool, answer func(w http.ResponseWriter, in map[string]any) *apiError) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, refused := readBody(w, r)
		if refused == nil && body == nil {
			return // the client has gone
		}
		var in map[string]any
		if refused == nil {
			in, refused = f.read(body, lenient)
		}
		if refused == nil {
			refused = answer(w, in)
		}
		if refused != nil {
			s.face.fail(w, refused)
		}
	}
}
