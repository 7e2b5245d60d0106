package serving

import (
	"fmt"
	"math"
	"path/filepath"
)

// Coefficients of c[0] + c[1]*x + c[2]*y, in seconds.
type Coefficients [3]float64

// At evaluates them.
func (c Coefficients) At(x, y float64) float64 { return c[0] + c[1]*x + c[2]*y }

// Fit is a model's latency on a device, with what is known of its quality.
type Fit struct {
	// Prefill takes the sum of the context lengths and the sum of their squares.
	Prefill Coefficients `json:"prefill_s"`
	// Decode takes the sum of the context lengths and the batch size.
	Decode Coefficients `json:"decode_s"`

	TrainedOn int `json:"trained_on"` // points
	HeldOut   int `json:"held_out"`   // points
	// R2 on the held-out points; absent without two of them that differ.
	PrefillR2 *float64 `json:"prefill_r2,omitempty"`
	DecodeR2  *float64 `json:"decode_r2,omitempty"`
}

// row is one equation: features x and y, observed value v.
type row struct{ x, y, v float64 }

// FitPoints fits both latencies by ordinary least squares with intercept over the
// points that are not held out.
func FitPoints(points []Point) (Fit, error) {
	var f Fit
	var prefill, decode [2][]row // trained on, held out
	for _, p := range points {
		t, s, set := float64(p.Input*p.Batch), float64(p.Input*p.Input*p.Batch), 0
		if p.HeldOut() {
			set = 1
		}
		prefill[set] = append(prefill[set], row{t, s, p.PrefillS})
		decode[set] = append(decode[set], row{t, float64(p.Batch), p.DecodeS})
	}
	f.TrainedOn, f.HeldOut = len(prefill[0]), len(prefill[1])
	var err error
	if f.Prefill, err = leastSquares(prefill[0]); err != nil {
		return f, fmt.Errorf("fit prefill: %w", err)
	}
	if f.Decode, err = leastSquares(decode[0]); err != nil {
		return f, fmt.Errorf("fit decode: %w", err)
	}
	f.PrefillR2, f.DecodeR2 = r2(f.Prefill, prefill[1]), r2(f.Decode, decode[1])
	return f, nil
}

// FitModels reads DIR/MODEL/DEVICE for each base model and fits it.
func FitModels(dir, device string, models []BaseModel) (map[string]Fit, error) {
	out := map[string]Fit{}
	for _, m := range models {
		points, err := ReadProfile(filepath.Join(dir, m.Name, device), m)
		if err != nil {
			return nil, err
		}
		if out[m.Name], err = FitPoints(points); err != nil {
			return nil, fmt.Errorf("profile of %s on %s: %w", m.Name, device, err)
		}
	}
	return out, nil
}

// leastSquares solves for two features and an intercept. Features are centred
// and scaled first, so that squares of lengths beside lengths lose no digits.
func leastSquares(rows []row) (Coefficients, error) {
	if len(rows) < 3 {
		return Coefficients{}, fmt.Errorf("%d points to train on, which cannot determine three coefficients: measure more", len(rows))
	}
	n := float64(len(rows))
	var mx, my, mv float64
	for _, r := range rows {
		mx, my, mv = mx+r.x/n, my+r.y/n, mv+r.v/n
	}
	var xx, yy, xy, xv, yv float64
	for _, r := range rows {
		dx, dy, dv := r.x-mx, r.y-my, r.v-mv
		xx, yy, xy, xv, yv = xx+dx*dx, yy+dy*dy, xy+dx*dy, xv+dx*dv, yv+dy*dv
	}
	sx, sy := math.Sqrt(xx), math.Sqrt(yy)
	if sx == 0 || sy == 0 {
		return Coefficients{}, fmt.Errorf("all %d points to train on have one size: measure others", len(rows))
	}
	rho := xy / (sx * sy)
	det := 1 - rho*rho
	if det < 1e-12 {
		return Coefficients{}, fmt.Errorf("the sizes of the %d points to train on depend on each other: measure more inputs and batches", len(rows))
	}
	b, c := xv/sx, yv/sy
	c1, c2 := (b-rho*c)/det/sx, (c-rho*b)/det/sy
	out := Coefficients{mv - c1*mx - c2*my, c1, c2}
	for _, v := range out {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Coefficients{}, fmt.Errorf("the coefficients are not finite: %v", out)
		}
	}
	return out, nil
}

// r2 is the share of the variance that the coefficients explain.
func r2(c Coefficients, rows []row) *float64 {
	mean := 0.0
	for _, r := range rows {
		mean += r.v / float64(len(rows))
	}
	var rest, total float64
	for _, r := range rows {
		d := r.v - c.At(r.x, r.y)
		rest, total = rest+d*d, total+(r.v-mean)*(r.v-mean)
	}
	if len(rows) < 2 || total == 0 {
		return nil
	}
	v := 1 - rest/total
	return &v
}
