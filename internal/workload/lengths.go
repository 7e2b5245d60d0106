package workload

import (
	"fmt"
	"math"
	"math/rand/v2"

	"assay/schemas"
)

// The laws of generated lengths.
const (
	DistFixed     = "fixed"
	DistUniform   = "uniform"
	DistLognormal = "lognormal"
)

// CheckLengths says what is wrong with a distribution; name stands for it.
func CheckLengths(name string, d schemas.LengthSpec) error {
	switch {
	case d.Max > maxTokens || d.Min < 0 || d.Tokens > maxTokens || (d.Max != 0 && d.Min > d.Max):
		return fmt.Errorf("%s: limits %d to %d: want 1 to %d tokens, the smaller first", name, d.Min, d.Max, maxTokens)
	case d.Dist == DistFixed && d.Tokens < 1:
		return fmt.Errorf("%s: a fixed length needs tokens = N", name)
	case d.Dist == DistFixed && (d.Min != 0 || d.Max != 0 || d.Mean != 0 || d.Sigma != 0),
		d.Dist == DistUniform && (d.Tokens != 0 || d.Mean != 0 || d.Sigma != 0), d.Dist == DistLognormal && d.Tokens != 0:
		return fmt.Errorf("%s: a key of another distribution than %q is set: fixed takes tokens; uniform min and max; lognormal mean, sigma, min and max", name, d.Dist)
	case d.Dist == DistUniform && (d.Min < 1 || d.Max < 1):
		return fmt.Errorf("%s: uniform lengths need min and max", name)
	case d.Dist == DistLognormal && (!(d.Mean >= 1) || !(d.Sigma >= 0) || d.Mean > maxTokens):
		return fmt.Errorf("%s: lognormal lengths need a mean of 1 or more tokens", name)
	case d.Dist != DistFixed && d.Dist != DistUniform && d.Dist != DistLognormal:
		return fmt.Errorf("%s: dist %q: want fixed, uniform or lognormal", name, d.Dist)
	}
	return nil
}

// Lengths returns a function that draws lengths, in tokens, from a stream of the
// seed that belongs to name. The description must have passed CheckLengths.
func Lengths(name string, d schemas.LengthSpec, seed uint64) func() int {
	r := NewRand(seed, "lengths/"+name)
	switch d.Dist {
	case DistUniform:
		return func() int { return d.Min + r.IntN(d.Max-d.Min+1) }
	case DistLognormal:
		return func() int { return lognormalLength(r, d) }
	}
	return func() int { return d.Tokens }
}

func lognormalLength(r *rand.Rand, d schemas.LengthSpec) int {
	high := float64(maxTokens)
	if d.Max > 0 {
		high = float64(d.Max)
	}
	x := math.Round(math.Exp(math.Log(d.Mean) - d.Sigma*d.Sigma/2 + d.Sigma*r.NormFloat64()))
	return int(math.Min(math.Max(x, float64(max(d.Min, 1))), high))
}

// Assign returns a function that picks one of n models at random.
func Assign(n int, seed uint64) func() int {
	r := NewRand(seed, PurposeAssign)
	return func() int { return r.IntN(n) }
}

// Switches lists indexes of n models so that every ordered pair of two of them
// follows one another exactly rounds times, and no model follows itself: a closed
// walk through all pairs, drawn from the seed. It has rounds*n*(n-1)+1 entries.
func Switches(n, rounds int, seed uint64) []int {
	var out []int
	for round := range rounds {
		r := NewRand(seed, fmt.Sprintf("order/switch/%d", round))
		start := 0
		if round > 0 {
			start = out[len(out)-1] // a round ends where it began
		} else {
			start = r.IntN(n)
		}
		walk := circuit(n, start, r)
		if round > 0 {
			walk = walk[1:]
		}
		out = append(out, walk...)
	}
	return out
}

// circuit is an Eulerian circuit of the complete directed graph (Hierholzer).
func circuit(n, start int, r *rand.Rand) []int {
	left := make([][]int, n)
	for i := range left {
		for _, j := range r.Perm(n) {
			if j != i {
				left[i] = append(left[i], j)
			}
		}
	}
	var out []int
	stack := []int{start}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		if k := len(left[at]); k > 0 {
			stack = append(stack, left[at][k-1])
			left[at] = left[at][:k-1]
			continue
		}
		out = append(out, at)
		stack = stack[:len(stack)-1]
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
