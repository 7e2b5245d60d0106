package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// Files of a service's metrics.
const (
	MetricsFile      = "metrics.jsonl"
	MetricsFirstFile = "metrics-first.txt"
	MetricsLastFile  = "metrics-last.txt"
)

const (
	maxMetricsBytes = 8 << 20
	maxSeries       = 50_000
	maxSeriesBytes  = 8 << 20 // of all series, as written
	settlePause     = 100 * time.Millisecond
	settleLimit     = 2 * time.Second
)

// scraper reads a service's metrics.
type scraper struct {
	ep   *endpoint
	path string
	dir  string
	hide func(string) string
	out  *sink
	st   *schemas.ObservedSource

	index  map[string]int // series as written -> its column
	kinds  map[string]string
	values [][]byte // of the last text
	fresh  []column
	size   int // bytes of all series
	over   int
	unseen bool // the look after the last answer gave nothing
	tracks []*track
	byName map[string][]slot
	first  []byte
	last   []byte
	body   []byte // reused
}

// column describes a series, once, before its first value.
type column struct {
	Index  int               `json:"i"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
	Kind   string            `json:"type,omitempty"`
}

// slot says where the values of a metric of a known name belong.
type slot struct {
	track *track
	rank  int
	part  int // of a histogram: 0 the sum, 1 the count
}

// track follows one entry of the catalogue.
type track struct {
	known
	columns map[int][2][]int // rank -> columns of both parts
	metric  map[int]string
	stats   [2]stats
	used    int // rank that is in use, -1 for none yet
}

func newScraper(ep *endpoint, path, dir string, hide func(string) string, st *schemas.ObservedSource) *scraper {
	s := &scraper{ep: ep, path: path, dir: dir, hide: hide, st: st, index: map[string]int{}, kinds: map[string]string{}, byName: map[string][]slot{}}
	for _, k := range catalogue {
		t := &track{known: k, columns: map[int][2][]int{}, metric: map[int]string{}, used: -1}
		s.tracks = append(s.tracks, t)
		for rank, name := range k.names {
			if k.kind != "histogram" {
				s.byName[name] = append(s.byName[name], slot{t, rank, 0})
				continue
			}
			s.byName[name+"_sum"] = append(s.byName[name+"_sum"], slot{t, rank, 0})
			s.byName[name+"_count"] = append(s.byName[name+"_count"], slot{t, rank, 1})
		}
	}
	return s
}

// first makes the look before the first request, and the file if it gave something.
func (s *scraper) before(ctx context.Context) error {
	text, err := s.ep.get(ctx, s.path, maxMetricsBytes)
	if err != nil {
		return err
	}
	at := time.Now()
	if err := s.parse(text); err != nil {
		return err
	}
	s.out, err = newSink(s.dir, MetricsFile, map[string]any{"schema": "assay/observed-metrics/v1", "path": s.path, "interval_s": s.st.IntervalS})
	if err != nil {
		return &writeError{err}
	}
	s.st.Files = append(s.st.Files, MetricsFile, MetricsFirstFile)
	s.first = bytes.Clone(text)
	return s.keep(beforeAll, at, 0)
}

func (s *scraper) look(ctx context.Context, w when) error {
	at := time.Now()
	text, err := s.ep.get(ctx, s.path, maxMetricsBytes)
	if err == nil {
		err = s.parse(text)
	}
	if err != nil {
		_ = s.out.add(at, member(nil, "error", s.hide(err.Error())))
		return err
	}
	s.ep.buf, s.last = s.last, text // two buffers take turns: the last good text stays
	return s.keep(w, at, time.Since(at))
}

// after looks until the service is idle and its counters have come to rest: some
// engines count a request a moment after its last byte.
func (s *scraper) after(ctx context.Context) error {
	deadline := time.Now().Add(settleLimit)
	err := s.look(ctx, afterAll)
	for err == nil {
		seen := s.counters()
		select {
		case <-ctx.Done():
			return nil // seen, if not at rest
		case <-time.After(settlePause):
		}
		s.st.Looks++ // the last one is counted by who called
		err = s.look(ctx, afterAll)
		if s.idle() && slices.Equal(seen, s.counters()) || time.Now().After(deadline) {
			break
		}
	}
	s.unseen = err != nil
	return err
}

// idle says that the service, as far as it tells, has nothing left to do.
func (s *scraper) idle() bool {
	for _, t := range s.tracks {
		if (t.name == "running_requests" || t.name == "waiting_requests") && t.stats[0].last > 0 {
			return false
		}
	}
	return true
}

func (s *scraper) counters() []float64 {
	var out []float64
	for _, t := range s.tracks {
		if t.kind != "gauge" {
			out = append(out, t.stats[0].last, t.stats[1].last)
		}
	}
	return out
}

// parse takes the values of a text over. A text without a single sample is an
// error; bad lines among others are counted.
func (s *scraper) parse(text []byte) error {
	s.fresh = s.fresh[:0]
	clear(s.values)
	found := 0
	bad, err := EachSample(text, func(name, kind []byte) {
		if _, known := s.kinds[string(name)]; !known && len(s.kinds) < maxSeries {
			s.kinds[string(name)] = string(kind)
		}
	}, func(sample Sample) {
		found++
		i, ok := s.index[string(sample.Series)]
		if !ok {
			if i, ok = s.introduce(sample); !ok {
				return
			}
		}
		s.values[i] = sample.Value
	})
	s.st.Bad += int64(bad)
	if found == 0 {
		if err != nil {
			return fmt.Errorf("not a text of metrics: %w", err)
		}
		return errors.New("not a text of metrics: it holds no sample")
	}
	return nil
}

// introduce gives a series that was not seen before its column.
func (s *scraper) introduce(sample Sample) (int, bool) {
	if len(s.index) == maxSeries || s.size+len(sample.Series) > maxSeriesBytes {
		s.over++
		return 0, false
	}
	labels, err := sample.LabelMap()
	if err != nil {
		s.st.Bad++
		return 0, false
	}
	s.size += len(sample.Series)
	i, name := len(s.index), string(sample.Name)
	s.index[string(sample.Series)] = i
	s.values = append(s.values, nil)
	kind := s.kinds[name]
	for k, v := range labels {
		labels[k] = s.hide(v)
	}
	s.fresh = append(s.fresh, column{i, name, labels, kind})
	for _, to := range s.byName[bare(name)] {
		parts := to.track.columns[to.rank]
		parts[to.part] = append(parts[to.part], i)
		to.track.columns[to.rank] = parts
		to.track.metric[to.rank] = name
	}
	return i, true
}

// keep writes the last text's values down and sums them up.
func (s *scraper) keep(w when, at time.Time, took time.Duration) error {
	b := s.body[:0]
	if len(s.fresh) > 0 {
		list, err := json.Marshal(s.fresh)
		if err != nil {
			return err
		}
		if err := s.out.add(at, append([]byte(`"series":`), list...)); err != nil {
			return err
		}
	}
	b = append(b, `"took_ns":`...)
	b = strconv.AppendInt(b, int64(took), 10)
	b = append(b, `,"values":[`...)
	for i, v := range s.values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendNumber(b, v)
	}
	b = append(b, ']')
	s.body = b
	for _, t := range s.tracks {
		t.take(w, s.values)
	}
	return s.out.add(at, b)
}

// appendNumber appends a value as it was written where JSON has such numbers, as
// text where it has not, and null for none.
func appendNumber(b, v []byte) []byte {
	switch {
	case v == nil:
		return append(b, "null"...)
	case isJSONNumber(v):
		return append(b, v...)
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.AppendQuote(b, string(v))
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

// take folds the label sets of the preferred metric that is there.
func (t *track) take(w when, values [][]byte) {
	if t.used < 0 {
		for rank := range t.names {
			if len(t.columns[rank][0]) > 0 {
				t.used = rank
				break
			}
		}
	}
	if t.used < 0 {
		return
	}
	for part, columns := range t.columns[t.used] {
		v, ok := foldColumns(t.fold, columns, values)
		if !ok {
			continue
		}
		st := &t.stats[part]
		if w != beforeAll && t.kind != "gauge" && !st.seenFirst {
			st.before(0) // a counter that is not there has counted nothing
		}
		st.take(w, v)
	}
}

func foldColumns(fold int, columns []int, values [][]byte) (total float64, found bool) {
	for _, i := range columns {
		if values[i] == nil {
			continue
		}
		v, err := strconv.ParseFloat(string(values[i]), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		switch {
		case !found:
			total = v
		case fold == maxOf:
			total = max(total, v)
		default:
			total += v
		}
		found = true
	}
	return total, found
}

// finish writes the first and last text and closes the file.
func (s *scraper) finish() error {
	s.ep.close()
	if s.out == nil {
		return nil
	}
	if s.over > 0 {
		s.st.LastError = fmt.Sprintf("more than %d series, or %d bytes of them: the rest is not in the file", maxSeries, maxSeriesBytes)
	}
	err := s.out.close()
	err = errors.Join(err, durable.WriteFile(filepath.Join(s.dir, MetricsFirstFile), []byte(s.hide(string(s.first))), 0o644))
	if s.last != nil {
		s.st.Files = append(s.st.Files, MetricsLastFile)
		err = errors.Join(err, durable.WriteFile(filepath.Join(s.dir, MetricsLastFile), []byte(s.hide(string(s.last))), 0o644))
	}
	return err
}

// summarize adds the catalogue's series.
func (s *scraper) summarize(out *schemas.Observed) {
	for _, t := range s.tracks {
		row := schemas.ObservedSeries{Name: t.name, Unit: t.unit, Kind: t.kind, Source: s.st.Name, File: MetricsFile}
		switch {
		case t.used < 0:
			row.Unknown = "the service has no such metric"
		case s.unseen && t.kind != "gauge":
			row.Metric, row.Unknown = t.metric[t.used], unseenAfter
		case t.kind == "histogram":
			row.Metric = t.metric[t.used]
			t.meanOf(&row)
		default:
			row.Metric = t.metric[t.used]
			t.stats[0].fill(&row)
		}
		out.Series = append(out.Series, row)
	}
	delta := func(name string) *float64 { return find(out.Series, name).Delta }
	hits, queries := delta("prefix_cache_hits"), delta("prefix_cache_queries")
	v := schemas.Value{Unit: "ratio"}
	switch {
	case hits == nil || queries == nil:
		v.Reason = "the service does not tell hits and queries of its prefix cache"
	case *queries <= 0:
		v.Reason = "no query of the prefix cache was counted"
	default:
		share := *hits / *queries
		v.Value = &share
	}
	out.Values["prefix_cache_hit_ratio"] = v
}

// meanOf is the mean of what a histogram counted between the first look and the
// last.
func (t *track) meanOf(row *schemas.ObservedSeries) {
	sum, count := &t.stats[0], &t.stats[1]
	switch n := count.last - count.first; {
	case !sum.seenFirst || !count.seenFirst || sum.fell || count.fell:
		row.Unknown = "it was not there from the first look to the last, or went back"
	case n <= 0:
		row.Unknown = "it counted nothing meanwhile"
	default:
		mean := (sum.last - sum.first) / n * t.scale
		row.N, row.Mean = int64(n), &mean
	}
}

// unseenAfter is why a counter has no delta.
const unseenAfter = "not seen after the last answer"

// find returns the series of a name, an empty one for none.
func find(series []schemas.ObservedSeries, name string) schemas.ObservedSeries {
	for _, s := range series {
		if s.Name == name {
			return s
		}
	}
	return schemas.ObservedSeries{}
}
