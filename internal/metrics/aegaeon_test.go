package metrics

import (
	"testing"

	"assay/schemas"
)

func TestNearestRank(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		p    float64
		want float64
	}{{[]float64{7}, 95, 7}, {[]float64{1, 2}, 50, 1}, {[]float64{1, 2}, 51, 2}, {[]float64{1, 2, 3, 4}, 95, 4}, {[]float64{1, 2, 3, 4}, 75, 3}, {[]float64{1, 2}, 0, 1}} {
		if got, ok := NearestRank(c.xs, c.p); !ok || got != c.want {
			t.Errorf("p%v of %v is %v, want %v", c.p, c.xs, got, c.want)
		}
	}
	if _, ok := NearestRank(nil, 50); ok {
		t.Error("a percentile of nothing")
	}
}

// The example of the definition: arrival 0, tokens at 3, 6, 7 and 8, T = 3, P = 2.
func TestAegaeonEntry(t *testing.T) {
	r := schemas.RequestRecord{Outcome: schemas.OutcomeTruncated, AskedOutputTokens: 4}
	for _, ms := range []int64{3, 6, 7, 8} {
		r.Chunks = append(r.Chunks, schemas.Chunk{AtNs: ms * 1e6})
	}
	slo := schemas.SLO{TTFTMs: 3, TPOTMs: 2}
	e, err := Aegaeon(&r, slo)
	if err != nil || e.QoS != 5/8.0 || e.TTFTMs != 3 || len(e.PerTokenMs) != 4 || e.PerTokenMs[1] != 3 {
		t.Errorf("%+v, %v", e, err)
	}
	r.AskedOutputTokens = 5
	if e, err = Aegaeon(&r, slo); err != nil || e.QoS != 0 || e.TTFTMs != 3 || len(e.PerTokenMs) != 0 {
		t.Errorf("another length: %+v, %v", e, err)
	}
}
