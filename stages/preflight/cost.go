package preflight

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"assay/internal/workload"
	"assay/schemas"
)

// maxCounted is the largest file of arrivals that is counted before a run.
const maxCounted = 16 << 20

// cost is what measure stages will send, as far as their keys tell.
type cost struct {
	requests       float64
	span           time.Duration
	known, unknown int // executions of stages
}

// costs sums up what a run will send and take, beside starts of services and warm-up.
func (c *collector) costs() {
	var sum cost
	for _, name := range slices.Sorted(maps.Keys(c.task.Experiment.Stage)) {
		def := c.task.Experiment.Stage[name]
		if def.Kind != "measure" {
			continue
		}
		for _, t := range c.trials() {
			n, span, ok := c.expected(schemas.Settings(def.Config), t)
			if !ok {
				sum.unknown++
				continue
			}
			sum.known, sum.requests, sum.span = sum.known+1, sum.requests+n, sum.span+span
		}
	}
	text := fmt.Sprintf("about %.0f requests", sum.requests)
	if sum.span > 0 {
		text += " over " + schemas.Decimal(math.Round(sum.span.Minutes()*10)/10) + " min of arrivals"
	}
	switch {
	case sum.known == 0 && sum.unknown == 0:
		text = "no requests that are measured"
	case sum.known == 0:
		text = fmt.Sprintf("requests of %d measurements whose number is not known before the run", sum.unknown)
	case sum.unknown > 0:
		text += fmt.Sprintf(", and those of %d measurements whose number is not known before the run", sum.unknown)
	}
	if room := schemas.Settings(c.task.Config).Bytes("disk"); room > 0 {
		text += fmt.Sprintf("; %s of disk are asked for", schemas.Size(room))
	}
	c.add(schemas.Finding{ID: "plan.cost", Severity: schemas.SeverityInfo, Subject: "run", Message: text})
}

// expected is how many requests an execution sends, and for how long they arrive; 0 for
// a time that is not known.
func (c *collector) expected(set schemas.Settings, t schemas.Trial) (n float64, span time.Duration, ok bool) {
	n, span = c.float(set, "requests", t), c.duration(set, "duration", t)
	if given, has := set["arrival"].(map[string]any); has {
		switch rate := c.float(given, "rate", t); {
		case n > 0 && rate > 0:
			span = seconds(n / rate)
		case n == 0:
			n = rate * span.Seconds()
		}
		return n, span, n > 0
	}
	source := set.Text("workload")
	for _, ref := range schemas.References(source) {
		if ref.Namespace != schemas.RefStage || len(ref.Names) == 0 {
			continue
		}
		if made := c.task.Experiment.Stage[ref.Names[0]]; made.Kind == "workload" {
			s := schemas.Settings(made.Config)
			span = c.duration(s, "duration", t)
			return c.sent(set, c.float(s, "models", t)*c.float(s, "rate", t)*span.Seconds(), span, t)
		}
	}
	if source != "" {
		count, last := c.counted(source, set, t)
		return c.sent(set, count, last, t)
	}
	return n, span, n > 0
}

// sent is what a stage takes of a workload: at its speed, the first so many.
func (c *collector) sent(set schemas.Settings, count float64, span time.Duration, t schemas.Trial) (float64, time.Duration, bool) {
	if speed := c.float(set, "speed", t); speed > 0 {
		span = seconds(span.Seconds() / speed)
	}
	if n := c.float(set, "requests", t); n > 0 && n < count {
		count, span = n, seconds(span.Seconds()*n/count)
	}
	return count, span, count > 0
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }

// counted are the rows of a file that is there, and the time of the last.
func (c *collector) counted(source string, set schemas.Settings, t schemas.Trial) (float64, time.Duration) {
	p, err := c.task.Resolve(source, t)
	if err != nil {
		return 0, 0
	}
	p = c.task.Abs(p)
	if info, err := os.Stat(p); err != nil || info.Size() > maxCounted {
		return 0, 0
	}
	w, err := workload.ReadFile(p, workload.Options{Form: workload.Form(set.Text("workload_form")), Unit: set.Text("timestamp_unit")})
	if err != nil || len(w.Requests) == 0 {
		return 0, 0 // which is said where it is checked
	}
	return float64(len(w.Requests)), time.Duration(w.SpanNs())
}

// value is a key as a trial sees it, "" where that is not known.
func (c *collector) value(set schemas.Settings, key string, t schemas.Trial) string {
	switch v := set[key].(type) {
	case float64:
		return schemas.Decimal(v)
	case string:
		if text, err := c.task.Resolve(v, t); err == nil {
			return text
		}
	}
	return ""
}

func (c *collector) float(set schemas.Settings, key string, t schemas.Trial) float64 {
	f, err := strconv.ParseFloat(c.value(set, key, t), 64)
	if err != nil || math.IsNaN(f) || f < 0 {
		return 0
	}
	return f
}

func (c *collector) duration(set schemas.Settings, key string, t schemas.Trial) time.Duration {
	d, _ := time.ParseDuration(c.value(set, key, t))
	return max(d, 0)
}
