package metrics

import "assay/schemas"

// How the tokens of each chunk are known.
const (
	TokensTold      = "told"      // the service said how many each chunk carries
	TokensOnePer    = "one_per"   // as many chunks as tokens, or no count at all: one each
	TokensEstimated = "estimated" // spread evenly over the chunks
	TokensNone      = "no_chunks" // nothing arrived
)

// ChunkTokens is how many tokens each token event of a request carried.
type ChunkTokens struct {
	Counts []int
	Total  int
	Source string
	// Disagree says that the counts the service told do not sum up to its total.
	Disagree bool
}

// TokensPerChunk gives each chunk its tokens. Where the service tells the counts
// they stand; tokens of the total that no chunk carried arrive with the last one.
// Otherwise, or when the told counts exceed the total, the total is spread evenly,
// the first chunk rounded up, since an event that carries output carries at least
// part of a token.
func TokensPerChunk(r *schemas.RequestRecord) ChunkTokens {
	c := len(r.Chunks)
	if c == 0 {
		return ChunkTokens{Source: TokensNone}
	}
	counts, sum, allTold := told(r.Chunks)
	n := c
	switch {
	case r.OutputTokens != nil && *r.OutputTokens > 0:
		n = *r.OutputTokens
	case allTold:
		n = sum
	}
	if allTold && sum <= n && counts[0] > 0 {
		counts[c-1] += n - sum
		return ChunkTokens{Counts: counts, Total: n, Source: TokensTold, Disagree: sum != n}
	}
	for i := range counts {
		counts[i] = ceilDiv((i+1)*n, c) - ceilDiv(i*n, c)
	}
	source := TokensEstimated
	if n == c {
		source = TokensOnePer
	}
	return ChunkTokens{Counts: counts, Total: n, Source: source, Disagree: allTold && sum != n}
}

// told lists what the service told of each chunk, and whether it told all.
func told(chunks []schemas.Chunk) (counts []int, sum int, all bool) {
	counts, all = make([]int, len(chunks)), true
	for i, ch := range chunks {
		if ch.Tokens == nil || *ch.Tokens < 0 {
			all = false
			continue
		}
		counts[i] = *ch.Tokens
		sum += counts[i]
	}
	return counts, sum, all && sum > 0
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// TokenTimesNs lists the arrival of every output token: a chunk of several tokens
// gives all of them its time.
func TokenTimesNs(r *schemas.RequestRecord) []int64 {
	tokens := TokensPerChunk(r)
	out := make([]int64, 0, tokens.Total)
	for i, n := range tokens.Counts {
		for ; n > 0; n-- {
			out = append(out, r.Chunks[i].AtNs)
		}
	}
	return out
}
