package serving

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"

	"assay/internal/durable"
	"assay/schemas"
)

const (
	maxProfileBytes   = 1 << 20
	maxProfileSamples = 100_000
	minProfileSamples = 3
	// maxLatencyS is more than any true prefill or decode step.
	maxLatencyS = 1e5
)

// Point is one measured point of a profile.
type Point struct {
	Index    int // in the grid of its model
	Input    int // tokens of each prompt
	Batch    int // requests
	PrefillS float64
	DecodeS  float64
}

// HeldOut says whether the point tests a fit instead of training it.
func (p Point) HeldOut() bool { return p.Index%3 == 0 }

// profileFile is the file of one point, as the published artifact writes it.
type profileFile struct {
	AvgPrefill *float64  `json:"avg_prefill_latency"`
	Prefill    []float64 `json:"prefill_latencies"`
	AvgDecode  *float64  `json:"avg_decode_latency"`
	Decode     []float64 `json:"decode_latencies"`
}

// Grid lists the points that count for a model: inputs of 16 to 4,096 tokens in
// powers of two, batches of 1, 2, 4, 8, 16, 30, 40, ..., 200, where the batch
// fits the model's sequence limit and the collector's.
func Grid(m BaseModel) []Point {
	batches := []int{1, 2, 4, 8, 16}
	for b := 30; b <= 200; b += 10 {
		batches = append(batches, b)
	}
	var grid []Point
	for input := 16; input <= 4096; input *= 2 {
		for _, b := range batches {
			if input*b <= m.MaxSeqLen && (input+10)*b < 10240 {
				grid = append(grid, Point{Index: len(grid), Input: input, Batch: b})
			}
		}
	}
	return grid
}

// ReadProfile reads the points of a model's grid that dir has files for,
// DIR/i<input>b<batch>.json; other files are not looked at. It refuses points
// with fewer than three samples, and numbers that are not finite and positive.
func ReadProfile(dir string, m BaseModel) ([]Point, error) {
	var points []Point
	for _, p := range Grid(m) {
		name := fmt.Sprintf("i%db%d.json", p.Input, p.Batch)
		file, err := readProfileFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("profile of %s: %w", m.Name, err)
		}
		p.PrefillS, err = average(file.AvgPrefill, file.Prefill)
		if err != nil {
			return nil, fmt.Errorf("profile of %s: %s: prefill: %w", m.Name, name, err)
		}
		p.DecodeS, err = average(file.AvgDecode, file.Decode)
		if err != nil {
			return nil, fmt.Errorf("profile of %s: %s: decode: %w", m.Name, name, err)
		}
		points = append(points, p)
	}
	if len(points) == 0 {
		return nil, fmt.Errorf("profile of %s: %s has none of the files i<input>b<batch>.json of its grid: want a folder MODEL/DEVICE of latency profiles", m.Name, dir)
	}
	return points, nil
}

func readProfileFile(path string) (profileFile, error) {
	var out profileFile
	f, err := durable.OpenRegular(path)
	if err != nil {
		return out, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProfileBytes+1))
	if err != nil {
		return out, err
	}
	out, err = parseProfile(b)
	if err != nil {
		return out, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return out, nil
}

func parseProfile(b []byte) (profileFile, error) {
	var out profileFile
	if len(b) > maxProfileBytes {
		return out, fmt.Errorf("is over the limit of %d bytes", maxProfileBytes)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, fmt.Errorf("not a latency profile: %w", err)
	}
	return out, nil
}

// average is the mean of the samples: the file's own, which must be that.
func average(avg *float64, samples []float64) (float64, error) {
	if k := len(samples); k < minProfileSamples || k > maxProfileSamples {
		return 0, fmt.Errorf("%d samples: want %d to %d; measure the point again", k, minProfileSamples, maxProfileSamples)
	}
	sum := 0.0
	for i, s := range samples {
		if !(s > 0) || s > maxLatencyS {
			return 0, fmt.Errorf("sample %d is %s s: want more than 0 and at most %s; measure the point again", i, schemas.Decimal(s), schemas.Decimal(maxLatencyS))
		}
		sum += s
	}
	mean := sum / float64(len(samples))
	if avg == nil {
		return mean, nil
	}
	if !(math.Abs(*avg-mean) <= 1e-6*mean) {
		return 0, fmt.Errorf("its average %s s is not that of its samples, %s s; measure the point again", schemas.Decimal(*avg), schemas.Decimal(mean))
	}
	return *avg, nil
}
