package workload

import (
	"strconv"
	"strings"
)

// Token ids of generated prompts lie in [TokenIDLow, TokenIDHigh): above the
// special tokens and inside the vocabulary of every model in common use.
const (
	TokenIDLow  = 100
	TokenIDHigh = 20000
)

// PromptTokenIDs returns the n token ids of request index's prompt. Equal
// arguments give equal ids; other indexes give unrelated ones, so that no two
// prompts share a prefix worth caching.
func PromptTokenIDs(seed uint64, index, n int) []int {
	r := NewRand(seed, "prompt/"+strconv.Itoa(index))
	ids := make([]int, max(n, 0))
	for i := range ids {
		ids[i] = TokenIDLow + r.IntN(TokenIDHigh-TokenIDLow)
	}
	return ids
}

// Short common words: one token each in the usual vocabularies.
var words = strings.Fields(`the of and to in is that it was for on are as with his they at be this from have or by one had
not but what all were when we there can an your which their said if do will each about how up out them then she many some so
these would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know get through back much before go good
new write our used me man too any day same right look think also around another came come work three word must because does part`)

// PromptText returns a prompt of about n tokens of plain words. The true length
// depends on the tokenizer and is what the service reports.
func PromptText(seed uint64, index, n int) string {
	r := NewRand(seed, "prompt/"+strconv.Itoa(index))
	var b strings.Builder
	for i := range max(n, 1) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String()
}
