package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"assay/archive"
	"assay/internal/durable"
	"assay/internal/report"
	"assay/schemas"
)

// maxConditions bounds a conditions document that is read into memory.
const maxConditions = 16 << 20

type viewDoc struct {
	Node string `json:"node"`
	report.View
}

type viewsDoc struct {
	Digest schemas.Digest `json:"digest"`
	Views  []viewDoc      `json:"views"`
}

// measured is one measure stage of a run, with its folder in it.
type measured struct {
	schemas.StageResult
	dir string
}

// measuredIn lists the measure stages of a run that have records, or the one named.
func measuredIn(run *archive.Run, node string) ([]measured, error) {
	var out []measured
	var names []string
	for _, r := range run.Report.Results {
		dir := path.Join("run", r.Stage)
		if r.Trial != "" {
			dir = path.Join("trials", r.Trial, r.Stage)
		}
		names = append(names, r.Node)
		if node == "" || node == r.Node {
			out = append(out, measured{r, dir})
		}
	}
	if len(out) == 0 && node != "" {
		return nil, usagef("--node %q: the run has %s", node, strings.Join(names, ", "))
	}
	if len(out) == 0 {
		return nil, usagef("run %s has no measure stage with records", run.Digest.Short())
	}
	return out, nil
}

// eachRecords opens a stage's record log and hands its records on.
func (c *call) eachRecords(run *archive.Run, m measured, use func(iter.Seq2[schemas.RequestRecord, error]) error) (err error) {
	name := m.dir + "/outputs/requests/requests.jsonl.zst"
	f, err := run.OpenFile(c.ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	rd, err := report.NewRecordReader(f, name)
	if err != nil {
		return err
	}
	defer rd.Close()
	return use(rd.All())
}

func (c *call) views(run *archive.Run, tool string, list []measured) ([]report.View, error) {
	var out []report.View
	for _, m := range list {
		err := c.eachRecords(run, m, func(records iter.Seq2[schemas.RequestRecord, error]) error {
			v, err := report.FoldView(tool, records, m.Result.SLO)
			out = append(out, v)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Node, err)
		}
	}
	return out, nil
}

// showView prints a run by another tool's definitions.
func (c *call) showView(run *archive.Run, tool string) error {
	if !slices.Contains(report.ViewNames(), tool) {
		return usagef("--view %q: want one of %s", tool, strings.Join(report.ViewNames(), ", "))
	}
	list, err := measuredIn(run, "")
	if err != nil {
		return err
	}
	views, err := c.views(run, tool, list)
	if err != nil {
		return err
	}
	doc, names := viewsDoc{Digest: run.Digest}, []string{}
	for i, v := range views {
		doc.Views = append(doc.Views, viewDoc{list[i].Node, v})
		names = append(names, list[i].Node)
	}
	if c.asJSON {
		return c.printJSON(doc)
	}
	c.printf("%s", report.ViewText(names, views))
	return nil
}

// exportRecords writes what is folded from a run's records: vllm or csv.
func (c *call) exportRecords(run *archive.Run, as, out string) error {
	list, err := measuredIn(run, c.String("node"))
	if err != nil {
		return err
	}
	if _, err := os.Lstat(out); err == nil {
		return usagef("%s exists: name a file that does not exist yet", out)
	}
	_ = durable.SweepTemps(filepath.Dir(out)) // what an export that was killed left; what cannot be looked at stays
	f, err := durable.Create(out)
	if err != nil {
		return err
	}
	defer f.Abort()
	buf := bufio.NewWriterSize(f, 256<<10)
	if as == "csv" {
		err = c.writeCSV(buf, run, list)
	} else {
		err = c.writeVLLM(buf, run, list)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(buf.Flush(), f.Commit()); err != nil {
		return err
	}
	if c.asJSON {
		return c.printJSON(exportDoc{Run: run.Digest, As: as, Out: out})
	}
	c.printf("exported %s to %s: %d measure stages as %s\n", run.Digest.Short(), out, len(list), as)
	return nil
}

func (c *call) writeCSV(out io.Writer, run *archive.Run, list []measured) error {
	w, err := report.NewCSVWriter(out)
	if err != nil {
		return err
	}
	for _, m := range list {
		err := c.eachRecords(run, m, func(records iter.Seq2[schemas.RequestRecord, error]) error { return w.Write(m.Stage, m.Trial, records) })
		if err != nil {
			return fmt.Errorf("%s: %w", m.Node, err)
		}
	}
	return nil
}

// writeVLLM writes one object; of several stages, one a line, as that tool's
// --append-result does.
func (c *call) writeVLLM(out io.Writer, run *archive.Run, list []measured) error {
	views, err := c.views(run, "vllm", list)
	if err != nil {
		return err
	}
	for i, v := range views {
		about, err := c.vllmRun(run, list[i])
		if err != nil {
			return fmt.Errorf("%s: %w", list[i].Node, err)
		}
		doc, err := report.VLLMJSON(v, about)
		if err != nil {
			return err
		}
		b, err := json.Marshal(doc)
		if err != nil {
			return fmt.Errorf("%s: %w", list[i].Node, err)
		}
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// vllmRun gathers what the records do not say.
func (c *call) vllmRun(run *archive.Run, m measured) (report.VLLMRun, error) {
	about := report.VLLMRun{Metadata: map[string]string{"assay_run": string(run.Digest), "assay_node": m.Node}}
	for _, r := range m.Result.Models {
		about.Models = append(about.Models, r.Model)
	}
	var conds []schemas.Condition
	if err := c.decodeFile(run, m.dir+"/outputs/result/conditions.json", &conds); err != nil {
		return about, err
	}
	for _, cond := range conds {
		text, _ := cond.Value.(string)
		switch cond.Name {
		case "api":
			about.API = text
		case "started_at":
			about.Started, _ = time.Parse(time.RFC3339Nano, text)
		}
	}
	var plan schemas.Schedule
	if err := c.decodeFile(run, m.dir+"/outputs/schedule/schedule.jsonl", &plan); err != nil {
		return about, err
	}
	about.MaxConcurrency = max(plan.Concurrency, plan.MaxInFlight)
	if plan.Process != nil {
		about.RequestRate, about.Burstiness = plan.Process.Rate, plan.Process.Shape
	} else if v := m.Result.Values["offered_rps"].Value; v != nil && about.MaxConcurrency == 0 {
		about.RequestRate = *v
	}
	return about, nil
}

// decodeFile reads the first JSON value of a file of a run.
func (c *call) decodeFile(run *archive.Run, name string, to any) (err error) {
	f, err := run.OpenFile(c.ctx, name)
	var corrupt *archive.CorruptError
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, &corrupt) {
		return nil // a run of an earlier version may lack it
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := io.LimitReader(f, maxConditions)
	if err := json.NewDecoder(b).Decode(to); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := io.Copy(io.Discard, f); err != nil { // to the end, where the bytes are judged
		return err
	}
	return nil
}
