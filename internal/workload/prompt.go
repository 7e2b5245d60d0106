package workload

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Token ids of generated prompts lie in [TokenIDLow, TokenIDHigh): above the
// special tokens and inside the vocabulary of every model in common use.
const (
	TokenIDLow  = 100
	TokenIDHigh = 20000
)

// Prompt is what a prompt is made from where that is not its index and length
// alone: a given text, or blocks of BlockTokens tokens of which equal ids mean
// equal content.
type Prompt struct {
	Text string
	// History is what was said in the conversation before Text.
	History     []Message
	Blocks      []int64
	BlockTokens int
}

// Message is one thing said in a conversation. Role is "user" or "assistant".
type Message struct {
	Role, Text string
}

// PromptTokenIDs returns the n token ids of request index's prompt. Equal
// arguments give equal ids. Without blocks other indexes give unrelated ones, so
// that no two prompts share a prefix worth caching; with blocks, prompts share
// what their block ids share, and what no block covers is the index's own.
func PromptTokenIDs(seed uint64, index, n int, p Prompt) []int {
	ids := make([]int, 0, max(n, 0))
	draw := func(r *rand.Rand, k int) {
		for range k {
			ids = append(ids, TokenIDLow+r.IntN(TokenIDHigh-TokenIDLow))
		}
	}
	pieces(seed, index, n, p, draw)
	return ids
}

// pieces calls draw for each block, and for the rest, with the generator of its
// content and its number of tokens.
func pieces(seed uint64, index, n int, p Prompt, draw func(*rand.Rand, int)) {
	for _, id := range p.Blocks {
		k := min(n, p.BlockTokens)
		if k <= 0 {
			return
		}
		draw(NewRand(seed, "block/"+strconv.FormatInt(id, 10)), k)
		n -= k
	}
	if n > 0 {
		draw(NewRand(seed, "prompt/"+strconv.Itoa(index)), n)
	}
}

// Short common words: one token each in the usual vocabularies.
var words = strings.Fields(`the of and to in is that it was for on are as with his they at be this from have or by one had
not but what all were when we there can an your which their said if do will each about how up out them then she many some so
these would other into has more her two like him see time could no make than first been its who now people my made over did
down only way find use may water long little very after words called just where most know get through back much before go good
new write our used me man too any day same right look think also around another came come work three word must because does part`)

// PromptText returns a prompt of about n tokens of plain words, made as
// PromptTokenIDs makes ids. The true length depends on the tokenizer and is what
// the service reports.
func PromptText(seed uint64, index, n int, p Prompt) string {
	var b strings.Builder
	pieces(seed, index, max(n, 1), p, func(r *rand.Rand, k int) {
		for range k {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(words[r.IntN(len(words))])
		}
	})
	return b.String()
}
