package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

const (
	inventoryFile = "inventory.sha256"
	maxConfig     = 4 << 20
)

// Result is what a folder holds, as far as it could be read.
type Result struct {
	Report   schemas.Validated
	Config   aegaeon.Config
	Findings []schemas.Finding
}

// OK says whether nothing was found against the folder.
func (r Result) OK() bool {
	return !slices.ContainsFunc(r.Findings, func(f schemas.Finding) bool {
		return f.Severity == schemas.SeverityError || f.Severity == schemas.SeverityUnknown
	})
}

type checker struct {
	ctx     context.Context
	fsys    fs.FS
	subject string
	// at is put before paths in findings: where the folder lies for people.
	at     string
	result *Result
}

// Check holds the folder of a validated run against every rule that needs no GPU. at is
// how people know the folder. Every file is read. The error is ctx's alone.
func Check(ctx context.Context, fsys fs.FS, at string) (Result, error) {
	var r Result
	c := &checker{ctx: ctx, fsys: fsys, subject: "source run " + at, at: at, result: &r}
	c.all()
	if err := ctx.Err(); err != nil {
		return r, err
	}
	if r.OK() {
		c.pass("source.report-checks", ReportFile, fmt.Sprintf("it passed, with %d checks", len(r.Report.Checks)))
		c.pass("source.models", ReportFile, fmt.Sprintf("%d models were captured, replayed and gave equal token ids", len(r.Report.Models)))
		c.pass("source.config-hash", r.Report.LoadConfig, "it is the configuration that was validated")
		c.pass("source.file-changed", r.Report.ArchiveRoot, fmt.Sprintf("%d files are what the inventory lists", len(r.Report.Files)))
	}
	return r, nil
}

func (c *checker) pass(id, name, message string) {
	c.result.Findings = append(c.result.Findings, schemas.Finding{ID: id, Severity: schemas.SeverityPass, Subject: c.subject, Path: name, Message: name + ": " + message})
}

// fail names the file, what is wrong, and what to do.
func (c *checker) fail(id, name, format string, args ...any) {
	const most = 200
	if n := len(c.result.Findings); n > most {
		return
	}
	message := fmt.Sprintf(format, args...)
	if name != "" {
		message = name + ": " + message
	}
	c.result.Findings = append(c.result.Findings, schemas.Finding{ID: id, Severity: schemas.SeverityError, Subject: c.subject, Path: name, Message: message, Remedy: remedyOf(id)})
}

// cannot is for what could not be read.
func (c *checker) cannot(name string, err error) {
	if c.ctx.Err() != nil {
		return
	}
	c.result.Findings = append(c.result.Findings, schemas.Finding{ID: "source.unreadable", Severity: schemas.SeverityUnknown, Subject: c.subject, Path: name,
		Message: fmt.Sprintf("%s: %v", name, plainError(err)), Remedy: remedyOf("source.unreadable")})
}

// plainError leaves out the name that the message has already.
func plainError(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func (c *checker) all() {
	b, err := c.read(ReportFile, maxReportBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fail("source.report-missing", ReportFile, "there is none: this is no validated run")
		return
	case err != nil:
		c.fail("source.report-unreadable", ReportFile, "%v", plainError(err))
		return
	}
	report, problems := parse(b)
	c.result.Report = report
	for _, p := range problems {
		text := p.text
		if p.path != "" {
			text = p.path + ": " + text
		}
		c.fail(p.id, ReportFile, "%s", text)
	}
	if len(problems) > 0 && problems[0].id == "source.report-unreadable" {
		return
	}
	c.judgement(len(problems) > 0)
	c.configuration()
	c.archives()
}

// judgement is what the report says of the run. Fields that are missing were told.
func (c *checker) judgement(flawed bool) {
	r := c.result.Report
	if !r.Passed && !flawed {
		c.fail("source.report-passed", ReportFile, "passed is false")
	}
	if len(r.Checks) == 0 && !flawed {
		c.fail("source.report-checks", ReportFile, "checks: the list is empty: passed alone proves nothing")
	}
	seen := map[string]bool{}
	for _, k := range r.Checks {
		if !k.OK {
			detail := k.Detail
			if detail != "" {
				detail = ": " + detail
			}
			c.fail("source.report-checks", ReportFile, "check %q did not hold%s", k.ID, detail)
		}
		if seen[k.ID] {
			c.fail("source.report-checks", ReportFile, "check %q is there twice", k.ID)
		}
		seen[k.ID] = true
	}
	if flawed {
		return
	}
	c.models()
	c.switches()
}

func (c *checker) models() {
	r := c.result.Report
	if len(r.Models) == 0 {
		c.fail("source.models", ReportFile, "models: the list is empty")
	}
	seen := map[string]bool{}
	for _, m := range r.Models {
		need := len(r.Graph.BatchSizes) // for one rank at least
		switch {
		case seen[m.Name]:
			c.fail("source.models", ReportFile, "model %s is there twice", m.Name)
		case m.Ranks < 1:
			c.fail("source.models", ReportFile, "model %s: ranks is %d: there is no decode rank with graphs", m.Name, m.Ranks)
		case m.GraphsCaptured < need:
			c.fail("source.models", ReportFile, "model %s: graphs_captured is %d, for %d batch sizes", m.Name, m.GraphsCaptured, need)
		case !m.TokenIDsEqual.OffSave || !m.TokenIDsEqual.OffLoad:
			c.fail("source.models", ReportFile, "model %s: token_ids_equal: answers with graphs are not those without (off_save %t, off_load %t)", m.Name, m.TokenIDsEqual.OffSave, m.TokenIDsEqual.OffLoad)
		case !m.ReplaySeen:
			c.fail("source.models", ReportFile, "model %s: replay_seen is false: its graphs were never replayed", m.Name)
		}
		seen[m.Name] = true
	}
	g := r.Graph
	if len(g.BatchSizes) == 0 || g.SeqLenBucket < 1 {
		c.fail("source.models", ReportFile, "graph: batch_sizes and seq_len_bucket say that nothing was captured")
	}
}

// switches wants A to B and back, for every model of a run with several.
func (c *checker) switches() {
	r := c.result.Report
	known, to, from := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range r.Models {
		known[m.Name] = true
	}
	for i, s := range r.SwitchSequence {
		switch {
		case !known[s.From] || !known[s.To]:
			c.fail("source.switches", ReportFile, "switch_sequence[%d]: from %q to %q: the report has no such model", i, s.From, s.To)
		case !s.OK:
			c.fail("source.switches", ReportFile, "switch_sequence[%d]: the switch from %s to %s is not ok", i, s.From, s.To)
		case s.From == s.To:
			c.fail("source.switches", ReportFile, "switch_sequence[%d]: from %s to itself is no switch", i, s.From)
		}
		from[s.From], to[s.To] = true, true
	}
	if len(r.Models) < 2 {
		return
	}
	for _, m := range r.Models {
		if !from[m.Name] || !to[m.Name] {
			c.fail("source.switches", ReportFile, "model %s was not switched to and away from", m.Name)
		}
	}
	if len(r.SwitchSequence) > 0 && !slices.ContainsFunc(r.SwitchSequence, func(s schemas.ValidatedSwitch) bool {
		return slices.ContainsFunc(r.SwitchSequence, func(back schemas.ValidatedSwitch) bool { return back.From == s.To && back.To == s.From })
	}) {
		c.fail("source.switches", ReportFile, "switch_sequence: no model was switched back to (A to B to A)")
	}
}

func (c *checker) configuration() {
	r := c.result.Report
	name := r.LoadConfig
	if name == "" {
		return // told already
	}
	if !clean(name) {
		c.fail("source.config-missing", ReportFile, "load_config: %q is no path inside the run", name)
		return
	}
	b, err := c.read(name, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.fail("source.config-missing", name, "the report names it, and it is not there")
		return
	case err != nil:
		c.fail("source.config-missing", name, "%v", plainError(err))
		return
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != r.LoadConfigSHA256 {
		c.fail("source.config-hash", name, "it hashes to %s, the report says %s", hex.EncodeToString(sum[:]), r.LoadConfigSHA256)
	}
	config, err := aegaeon.ParseConfig(name, b)
	if err != nil {
		c.fail("source.config-yaml", "", "%v", err)
		return
	}
	c.result.Config = config
	c.engines(name, config)
	c.sameModels(name, config)
	c.sameLayout(name, config)
	c.archiveDir(name, config.Server.CUDAGraph.ArchiveDir)
}

func (c *checker) engines(name string, config aegaeon.Config) {
	s := config.Server
	switch {
	case s.CUDAGraph.Mode != "load":
		c.fail("source.config-mode", name, "server.cuda_graph.mode is %q: want 'load'", string(s.CUDAGraph.Mode))
	case s.NumEngines > 0:
		c.fail("source.config-mode", name, "server.num_engines is %d: simple engines replay no graphs", s.NumEngines)
	case s.DummyWeights:
		c.fail("source.config-mode", name, "server.dummy_weights is true: nothing measured with them counts")
	}
}

func (c *checker) sameModels(name string, config aegaeon.Config) {
	var have, want []string
	for _, m := range config.Models {
		have = append(have, m.Name)
	}
	for _, m := range c.result.Report.Models {
		want = append(want, m.Name)
	}
	for _, m := range have {
		if !slices.Contains(want, m) {
			c.fail("source.config-models", name, "model %s is in the configuration and not in the report: it has no archive", m)
		}
	}
	for _, m := range want {
		if !slices.Contains(have, m) {
			c.fail("source.config-models", name, "model %s is in the report and not in the configuration", m)
		}
	}
	start := config.Server.StartupModels
	if start == nil {
		return
	}
	if slices.Sort(have); !slices.Equal(slices.Sorted(slices.Values(*start)), have) {
		c.fail("source.config-models", name, "server.startup_models are not the models of the configuration")
	}
}

func (c *checker) sameLayout(name string, config aegaeon.Config) {
	g, r := config.Server.CUDAGraph, c.result.Report.Graph
	differ := func(key string, have, want any) {
		if fmt.Sprint(have) != fmt.Sprint(want) {
			c.fail("source.config-graph", name, "%s is %v, the report says %v", key, have, want)
		}
	}
	sizes := slices.Compact(slices.Sorted(slices.Values(g.BatchSizes)))
	differ("server.cuda_graph.batch_sizes", sizes, slices.Compact(slices.Sorted(slices.Values(r.BatchSizes))))
	if len(g.SeqLenBuckets) != 1 {
		c.fail("source.config-graph", name, "server.cuda_graph.seq_len_buckets has %d values: expect one maximum sequence length", len(g.SeqLenBuckets))
	} else {
		differ("server.cuda_graph.seq_len_buckets", g.SeqLenBuckets[0], r.SeqLenBucket)
	}
	differ("server.cuda_graph.base_address", uint64(g.BaseAddress), r.BaseAddress)
	differ("server.cuda_graph.region_size_bytes", uint64(g.RegionSizeBytes), r.RegionSizeBytes)
	differ("server.cuda_graph.scratch_size_bytes", uint64(g.ScratchSizeBytes), r.ScratchSizeBytes)
	differ("server.cuda_graph.strict", g.Strict, r.Strict)
	differ("server.memory_utilization", config.Server.MemoryUtilization, r.MemoryUtilization)
}

// archiveDir takes a path beside the report. One that is absolute is of the machine
// that saved: its end must be the archive root, and it is replaced when it is used.
func (c *checker) archiveDir(name, dir string) {
	root := c.result.Report.ArchiveRoot
	if !clean(root) {
		return // told with the archive root
	}
	parts := strings.Split(dir, "/")
	switch {
	case slices.Contains(parts, ".."):
		c.fail("source.config-archive", name, "server.cuda_graph.archive_dir: %q leads out of the run", dir)
	case strings.HasPrefix(dir, "/") && !strings.HasSuffix(path.Clean(dir), "/"+root):
		c.fail("source.config-archive", name, "server.cuda_graph.archive_dir: %s does not end in %s, the archive root of the report", dir, root)
	case !strings.HasPrefix(dir, "/") && path.Clean(dir) != root:
		c.fail("source.config-archive", name, "server.cuda_graph.archive_dir: %q is not %s, the archive root of the report", dir, root)
	}
}

// clean says whether a path lies inside the folder and is written in one way only.
func clean(p string) bool { return p != "." && fs.ValidPath(p) && !strings.ContainsAny(p, "\\\x00") }

// archives holds every file against the inventory.
func (c *checker) archives() {
	r := c.result.Report
	there, ok := c.walk()
	if !ok {
		return
	}
	if r.ArchiveRoot != "" {
		c.archiveRoot(there)
	}
	listed := map[string]schemas.ValidatedFile{}
	for _, f := range r.Files {
		switch _, twice := listed[f.Path]; {
		case !clean(f.Path):
			c.fail("source.file-path", ReportFile, "files: %q is no path inside the run", f.Path)
			continue
		case twice:
			c.fail("source.file-path", ReportFile, "files: %s is there twice", f.Path)
		}
		listed[f.Path] = f
	}
	for _, p := range slices.Sorted(maps.Keys(listed)) {
		if c.ctx.Err() != nil {
			return
		}
		size, ok := there[p]
		switch f := listed[p]; {
		case !ok:
			c.fail("source.file-missing", p, "the inventory lists it, and it is not there")
		case size != f.Size:
			c.fail("source.file-changed", p, "it has %d bytes, the inventory says %d", size, f.Size)
		default:
			c.hash(p, f.SHA256)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(there)) {
		if _, ok := listed[p]; !ok && p != ReportFile && p != inventoryFile {
			c.fail("source.file-extra", p, "the inventory does not list it")
		}
	}
	if _, ok := there[inventoryFile]; ok {
		c.inventory(listed)
	}
}

// walk lists the files with their sizes. Anything that is neither file nor folder is
// refused.
func (c *checker) walk() (map[string]int64, bool) {
	there, whole := map[string]int64{}, true
	err := fs.WalkDir(c.fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = c.ctx.Err()
		}
		switch {
		case err != nil:
			if c.ctx.Err() == nil {
				c.cannot(p, err)
				whole = false
				return nil
			}
			return err
		case d.IsDir():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			c.fail("source.file-kind", p, "it is a symbolic link")
			return nil
		case !d.Type().IsRegular():
			c.fail("source.file-kind", p, "it is neither a file nor a folder")
			return nil
		case len(there) >= maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		info, err := d.Info()
		if err != nil {
			c.cannot(p, err)
			return nil
		}
		there[p] = info.Size()
		return nil
	})
	if err != nil {
		c.cannot(".", err)
		return nil, false
	}
	return there, whole
}

func (c *checker) archiveRoot(there map[string]int64) {
	root := c.result.Report.ArchiveRoot
	if !clean(root) {
		c.fail("source.archive-root", ReportFile, "archive_root: %q is no path inside the run", root)
		return
	}
	n := 0
	graphs := map[string]bool{}
	for p, size := range there {
		if !strings.HasPrefix(p, root+"/") {
			continue
		}
		n++
		if size == 0 {
			c.fail("source.archive-pair", p, "it is empty")
		}
		if base := path.Base(p); strings.HasSuffix(base, ".cugraph") || strings.HasPrefix(base, "graph_") && strings.HasSuffix(base, ".json") && base != "graph_manifest.json" {
			graphs[strings.TrimSuffix(strings.TrimSuffix(p, ".json"), ".cugraph")] = true
		}
	}
	if n == 0 {
		c.fail("source.archive-root", root, "there is no file of archives in it")
	}
	for _, g := range slices.Sorted(maps.Keys(graphs)) {
		for _, suffix := range []string{".json", ".cugraph"} {
			if _, ok := there[g+suffix]; !ok {
				c.fail("source.archive-pair", g+suffix, "it is missing, and a graph is a pair of .json and .cugraph")
			}
		}
	}
}

// inventory holds the list for sha256sum against the report's own.
func (c *checker) inventory(listed map[string]schemas.ValidatedFile) {
	b, err := c.read(inventoryFile, maxReportBytes)
	if err != nil {
		c.cannot(inventoryFile, err)
		return
	}
	left := maps.Clone(listed)
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		sum, name, ok := strings.Cut(line, "  ")
		f, known := listed[name]
		switch {
		case !ok:
			c.fail("source.inventory", inventoryFile, "line %d is no SHA-256, two spaces and a path", n)
		case !known:
			c.fail("source.inventory", inventoryFile, "line %d: the report does not list %s", n, name)
		case !strings.EqualFold(sum, f.SHA256):
			c.fail("source.inventory", inventoryFile, "line %d: another SHA-256 of %s than in the report", n, name)
		}
		delete(left, name)
	}
	for _, p := range slices.Sorted(maps.Keys(left)) {
		c.fail("source.inventory", inventoryFile, "%s is in the report and not listed", p)
	}
}

func (c *checker) hash(name, want string) {
	f, err := c.fsys.Open(name)
	if err != nil {
		c.cannot(name, err)
		return
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, &ctxReader{c.ctx, f}); err != nil {
		c.cannot(name, err)
		return
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		c.fail("source.file-changed", name, "it hashes to %s, the inventory says %s", got, want)
	}
}

func (c *checker) read(name string, limit int64) ([]byte, error) {
	if info, err := fs.Lstat(c.fsys, name); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	f, err := c.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return b, err
}

// ctxReader stops a long read when its context ends.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
