package simulate

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"assay/internal/durable"
	"assay/internal/report"
	"assay/internal/serving"
	"assay/pipeline"
	"assay/schemas"
)

// The outputs of a sweep, and the files in them.
const (
	OutputPoints = "points"
	OutputChart  = "chart"

	PointsFile = "points.csv"
	SVGFile    = "panel.svg"
	TextFile   = "panel.txt"
)

const (
	cellHeader   = "policy,device,workers,models,rate,input_scale,output_scale,slo_scale"
	pointsHeader = cellHeader + ",requests,finished,failed_patience,failed_capacity,failed_replica,tokens,model_switches,steals,mean_qos,mean_qos_other_batch_term\n"
)

func appendSeries(list []schemas.PanelSeries, name string) []schemas.PanelSeries {
	if seriesOf(list, name) != nil {
		return list
	}
	return append(list, schemas.PanelSeries{Name: name, Points: []schemas.PanelPoint{}})
}

func seriesOf(list []schemas.PanelSeries, name string) *schemas.PanelSeries {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func sortPoints(points []schemas.PanelPoint) {
	slices.SortStableFunc(points, func(a, b schemas.PanelPoint) int { return cmp.Compare(a.X, b.X) })
}

// write puts out the table of points, every request of each, and the chart.
func (s *sweep) write(task *pipeline.Task, panel schemas.Panel) error {
	dir, err := task.OutputDir(OutputPoints)
	if err != nil {
		return err
	}
	points, requests := bytes.NewBufferString(pointsHeader), bytes.NewBufferString(cellHeader+","+serving.OutcomesHeader+"\n")
	for _, c := range s.cells {
		st := c.sim.Stats
		fmt.Fprintf(points, "%s,%d,%d,%d,%d,%d,%d,%d,%d,%s,%s\n", c.name(), st.Requests, st.Finished, st.FailedPatience, st.FailedCapacity, st.FailedReplica,
			st.Tokens, st.ModelSwitches, c.sim.Cluster.Stealing.Successes, num(c.sim.MeanQoS), num(c.otherQoS))
		c.appendRows(requests)
	}
	if err := put(filepath.Join(dir, PointsFile), points.Bytes()); err != nil {
		return err
	}
	if err := put(filepath.Join(dir, RequestsFile), requests.Bytes()); err != nil {
		return err
	}
	if err := s.cells[0].p.writeFits(dir); err != nil {
		return err
	}
	if s.tokens {
		if err := s.writeTokens(filepath.Join(dir, TokensFile)); err != nil {
			return err
		}
	}
	chart, err := task.OutputDir(OutputChart)
	if err != nil {
		return err
	}
	var svg bytes.Buffer
	if err := report.PanelSVG(&svg, panel); err != nil {
		return err
	}
	if err := put(filepath.Join(chart, SVGFile), svg.Bytes()); err != nil {
		return err
	}
	return put(filepath.Join(chart, TextFile), []byte(report.PanelText(panel)))
}

func (c *cell) appendRows(b *bytes.Buffer) {
	prefix := c.name() + ","
	for _, r := range c.load.in.Requests {
		row := c.sim.Rows[r.Index]
		line := append(append(b.AvailableBuffer(), prefix...), c.load.in.IDs[r.Index]...)
		line = append(line, ',')
		if row.Finished {
			line = strconv.AppendInt(line, row.FirstMs, 10)
			line = strconv.AppendInt(append(line, ','), row.LastMs, 10)
		} else {
			line = append(line, ',')
		}
		line = append(strconv.AppendInt(append(line, ','), int64(row.Tokens), 10), '\n')
		b.Write(line)
	}
}

func (s *sweep) writeTokens(path string) error {
	w, err := newTokenWriter(path, cellHeader+","+tokensHeader)
	if err != nil {
		return err
	}
	defer w.file.Abort()
	for _, c := range s.cells {
		w.line = c.tokens
		if err := w.flushLine(); err != nil {
			return err
		}
	}
	return w.close()
}

func put(path string, data []byte) error {
	if err := durable.WriteFile(path, data, 0o644); err != nil {
		return &pipeline.InfraError{Op: "write " + filepath.Base(path), Err: err}
	}
	return nil
}

// conditions say what the points have in common, and what the batch term does.
func (s *sweep) conditions(panel schemas.Panel) []schemas.Condition {
	var list []schemas.Condition
	add := func(name string, value any) { list = append(list, schemas.Condition{Name: name, Value: value}) }
	p := s.cells[0].p
	add("simulated", "a model of a serving system on a virtual clock; nothing was measured")
	add("points", len(s.cells))
	add("bandwidth_gb_per_s", p.cfg.BandwidthGBps)
	add("switch_overhead", s.set.Text("switch_overhead"))
	add("patience", s.set.Text("patience"))
	add("work_stealing", s.set.Bool("work_stealing"))
	add("nodes", map[string]any{"nodes": p.cfg.Nodes, "replicas": p.cfg.Replicas, "routing": p.cfg.Routing, "placement": p.cfg.Placement, "model_cache_gb": p.cfg.ModelCacheGB})
	add("latency_source", p.source)
	add("latency_fits", p.fits)
	add("batch_term", p.cfg.BatchTerm)
	add("batch_term_effect", s.termEffect(panel))
	return list
}

// termEffect is how far the other batch term moves the points, and the loads.
func (s *sweep) termEffect(panel schemas.Panel) any {
	largest, sum := 0.0, 0.0
	for _, c := range s.cells {
		d := math.Abs(c.otherQoS - c.sim.MeanQoS)
		largest, sum = max(largest, d), sum+d
	}
	other := s.panel(func(c *cell) float64 { return c.otherQoS })
	loads := map[string]any{}
	for i, line := range other.Series {
		loads[line.Name] = map[string]any{"load": panel.Series[i].Load, "load_with_other": line.Load}
	}
	return map[string]any{"other": s.cells[0].p.otherTerm().BatchTerm, "largest_difference": largest, "mean_difference": sum / float64(len(s.cells)), "loads": loads}
}
