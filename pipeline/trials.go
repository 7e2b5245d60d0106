package pipeline

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"

	"assay/schemas"
)

// DeriveSeed gives the seed for a purpose: the first 53 bits of
// SHA-256("assay/seed/v1\n<seed>\n<purpose>"), so that it survives JSON.
func DeriveSeed(seed uint64, purpose string) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "assay/seed/v1\n%d\n%s", seed, purpose))
	return binary.BigEndian.Uint64(sum[:8]) >> 11
}

// expandTrials crosses the matrix with the repetitions, in the order they run.
// Axes are crossed in byte order of their names, the last one fastest.
func expandTrials(exp schemas.Experiment) []schemas.Trial {
	points := crossMatrix(exp.Matrix)
	repeat := max(exp.Trials.Repeat, 1)
	type slot struct{ point, rep int }
	var slots []slot
	switch exp.Trials.Order {
	case schemas.OrderSequential:
		for p := range points {
			for r := range repeat {
				slots = append(slots, slot{p, r})
			}
		}
	case schemas.OrderABBA:
		for r := range repeat {
			for i := range points {
				p := i
				if r%2 == 1 {
					p = len(points) - 1 - i
				}
				slots = append(slots, slot{p, r})
			}
		}
	default:
		for r := range repeat {
			for p := range points {
				slots = append(slots, slot{p, r})
			}
		}
		if exp.Trials.Order == schemas.OrderRandom {
			rng := rand.New(rand.NewPCG(DeriveSeed(exp.Trials.Seed, "order"), 0))
			rng.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
		}
	}
	trials := make([]schemas.Trial, len(slots))
	for i, s := range slots {
		trials[i] = schemas.Trial{
			ID: fmt.Sprintf("t%03d", i+1), Position: i, Point: points[s.point], Repetition: s.rep,
			Seed: DeriveSeed(exp.Trials.Seed, fmt.Sprintf("repetition/%d", s.rep)),
		}
	}
	return trials
}

func crossMatrix(matrix map[string][]any) []map[string]any {
	names := make([]string, 0, len(matrix))
	for n := range matrix {
		names = append(names, n)
	}
	sort.Strings(names)
	points := []map[string]any{{}}
	for _, n := range names {
		var next []map[string]any
		for _, p := range points {
			for _, v := range matrix[n] {
				q := map[string]any{n: v}
				for k, x := range p {
					q[k] = x
				}
				next = append(next, q)
			}
		}
		points = next
	}
	return points
}

// trialParams are the parameters as a trial sees them.
func trialParams(exp schemas.Experiment, point map[string]any) map[string]any {
	return schemas.TrialParams(exp.Params, point)
}

// trialLabel names a trial by what it is, not by when it runs, so that it may
// stand in a key.
func trialLabel(t schemas.Trial) string {
	names := make([]string, 0, len(t.Point))
	for n := range t.Point {
		names = append(names, n)
	}
	slices.Sort(names)
	label := ""
	for _, n := range names {
		b, err := schemas.Canonical(t.Point[n])
		if err != nil {
			b = fmt.Appendf(nil, "%v", t.Point[n])
		}
		label += n + "=" + string(b) + ","
	}
	return label + fmt.Sprintf("repetition=%d", t.Repetition)
}
