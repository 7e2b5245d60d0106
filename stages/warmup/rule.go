package warmup

import (
	"fmt"
	"slices"

	"assay/internal/metrics"
	"assay/schemas"
)

// rule says when a model is warm: after count requests or, with over > 0, once
// E2E is stable, which must be the case after count requests at the latest.
type rule struct {
	count  int
	over   int
	within float64 // per cent
}

func ruleOf(set schemas.Settings) rule {
	r := rule{count: set.Int("count")}
	if t := set.Table("stable"); t != nil {
		r.over, r.within = t.Int("over"), t.Float("within_percent")
	}
	return r
}

func (r rule) String() string {
	if r.over == 0 {
		return fmt.Sprintf("%d requests", r.count)
	}
	return fmt.Sprintf("E2E of the last %d requests within %s %% of their mean, after at most %d", r.over, schemas.Decimal(r.within), r.count)
}

// holds judges the E2E times so far, in milliseconds. spread is that of the last
// requests in per cent of their mean, nil where there is none.
func (r rule) holds(e2e []float64) (held bool, spread *float64) {
	if r.over == 0 {
		return len(e2e) >= r.count, nil
	}
	if len(e2e) < r.over {
		return false, nil
	}
	last := e2e[len(e2e)-r.over:]
	mean, ok := metrics.Mean(last)
	if !ok || mean <= 0 {
		return false, nil
	}
	s := (slices.Max(last) - slices.Min(last)) / mean * 100
	return s <= r.within, &s
}
