package aegaeon

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

// graphs checks cuda_graph. With mode off only the form of its keys counts.
func (c *checker) graphs(server *aegaeon.Value) {
	g := server.Get("cuda_graph")
	if g == nil || g.Kind != aegaeon.Table {
		return
	}
	mode := g.Get("mode")
	if mode == nil || (mode.Text != "save" && mode.Text != "load") {
		return
	}
	if simple := whole(server, "num_engines", 0); simple > 0 {
		c.of(mode).fail("aegaeon.graph-engines", "use prefill and decode engines, or mode: 'off'", "mode %s: simple engines neither save nor replay graphs", mode.Text)
	}
	switch dir := g.Get("archive_dir"); {
	case dir == nil || dir.Text == "":
		c.of(mode).fail("aegaeon.archive-dir", "set archive_dir", "mode %s wants an archive_dir", mode.Text)
	case !filepath.IsAbs(dir.Text):
		c.of(dir).warn("aegaeon.archive-dir", "write the absolute path, or let the experiment replace it", "archive_dir: %.80q is relative", dir.Text)
	}
	c.shapes(g)
	c.layout(g)
}

func (c *checker) shapes(g *aegaeon.Value) {
	b := g.Get("seq_len_buckets")
	switch {
	case b == nil:
		c.of(g).fail("aegaeon.bucket", "write seq_len_buckets: [N], the longest sequence", "seq_len_buckets is not set, and the default has five: save and load want exactly one")
	case b.Kind == aegaeon.List && len(b.Items) != 1:
		c.of(b).fail("aegaeon.bucket", "write seq_len_buckets: [N], the longest sequence", "seq_len_buckets has %d: save and load want exactly one", len(b.Items))
	}
	s := g.Get("batch_sizes")
	if s == nil || s.Kind != aegaeon.List {
		return
	}
	if len(s.Items) == 0 {
		c.of(s).fail("aegaeon.batch-sizes", "list the batch sizes that will be met, as [1, 2, 4, 8]", "batch_sizes is empty")
	}
	last := int64(0)
	for i, v := range s.Items {
		n, err := strconv.ParseInt(v.Text, 0, 64)
		if err == nil && n <= last {
			c.of(v).warn("aegaeon.batch-sizes", "list each once, in ascending order", "batch_sizes[%d]: %d: sizes are sorted and each is taken once", i, n)
		}
		last = max(last, n)
	}
}

// layout checks the region of memory that graphs are laid out in.
func (c *checker) layout(g *aegaeon.Value) {
	sizes := map[string]uint64{"base_address": 0x400000000000, "region_size_bytes": 256 << 30, "scratch_size_bytes": 4 << 30}
	for _, name := range []string{"base_address", "region_size_bytes", "scratch_size_bytes"} {
		v := g.Get(name)
		if v == nil || v.Kind != aegaeon.Scalar {
			continue
		}
		n, err := strconv.ParseUint(strings.ReplaceAll(v.Text, "_", ""), 0, 64)
		if err != nil {
			return // has a finding of its own
		}
		if n == 0 || n%twoMiB != 0 {
			c.of(v).fail("aegaeon.alignment", "round it to a multiple of 2097152", "%s: %s is not a positive multiple of 2 MiB", name, v.Text)
		}
		sizes[name] = n
	}
	if sizes["scratch_size_bytes"] >= sizes["region_size_bytes"] {
		where := g.Get("scratch_size_bytes")
		if where == nil {
			where = g.Get("region_size_bytes")
		}
		c.of(where).fail("aegaeon.scratch", "make scratch_size_bytes less than region_size_bytes", "scratch of %d bytes does not fit the region of %d", sizes["scratch_size_bytes"], sizes["region_size_bytes"])
	}
	if sizes["base_address"]+sizes["region_size_bytes"] < sizes["base_address"] {
		c.of(g.Get("region_size_bytes")).fail("aegaeon.alignment", "make the region smaller", "the region ends beyond the last address")
	}
}

// LoadDiffers compares what a graph archive was saved with and what it is to be
// loaded with: only the mode may differ, and what is true of one machine only, the
// folder of archives and those of models, when paths says so.
func LoadDiffers(subject, file string, saved, loaded []byte, paths bool) []schemas.Finding {
	c := &checker{subject: subject, file: file}
	a, problemsA := aegaeon.Parse(saved)
	b, problemsB := aegaeon.Parse(loaded)
	if len(problemsA)+len(problemsB) > 0 {
		c.fail("aegaeon.yaml", "want one YAML document with server, models and devices", "the configurations of save and load cannot be compared: one is no document")
		return c.findings
	}
	d := &difference{checker: c, paths: paths}
	d.compare("", a, b)
	if len(c.findings) == 0 {
		c.add("aegaeon.save-load", "pass", "", "is what was saved with, but for the mode")
		c.findings[0].File = ""
	}
	return c.findings
}

type difference struct {
	*checker
	paths bool
}

func (d *difference) may(at string) bool {
	if at == "server.cuda_graph.mode" {
		return true
	}
	return d.paths && (at == "server.cuda_graph.archive_dir" || (strings.HasPrefix(at, "models[") && strings.HasSuffix(at, "].path")))
}

func (d *difference) differs(at string, where *aegaeon.Value, format string, args ...any) {
	d.of(where).fail("aegaeon.save-load", "load with the configuration that was saved with, changing the mode only; or save a new archive", "%s: "+format, append([]any{at}, args...)...)
}

func (d *difference) compare(at string, a, b *aegaeon.Value) {
	if d.may(at) || len(d.findings) >= maxFindings {
		return
	}
	if a.Kind != b.Kind {
		d.differs(at, b, "is a %s, was a %s when it was saved", b.Kind, a.Kind)
		return
	}
	switch a.Kind {
	case aegaeon.Scalar:
		if meaning(a) != meaning(b) {
			d.differs(at, b, "is %.80q, was %.80q when it was saved", b.Text, a.Text)
		}
	case aegaeon.List:
		if len(a.Items) != len(b.Items) {
			d.differs(at, b, "has %d entries, had %d when it was saved", len(b.Items), len(a.Items))
			return
		}
		for i := range a.Items {
			d.compare(at+"["+strconv.Itoa(i)+"]", a.Items[i], b.Items[i])
		}
	case aegaeon.Table:
		d.tables(at, a, b)
	}
}

func (d *difference) tables(at string, a, b *aegaeon.Value) {
	if at != "" {
		at += "."
	}
	var done []string
	for _, k := range a.Keys {
		if slices.Contains(done, k.Name) {
			continue
		}
		done = append(done, k.Name)
		if other := b.Get(k.Name); other != nil {
			d.compare(at+k.Name, k.Value, other)
		} else if !d.may(at + k.Name) {
			d.differs(at+k.Name, b, "is not set, was when it was saved")
		}
	}
	for _, k := range b.Keys {
		if a.Get(k.Name) == nil && !d.may(at+k.Name) {
			d.differs(at+k.Name, k.Value, "is set, was not when it was saved")
		}
	}
}

// meaning is a scalar as YAML 1.1 reads it, so that '8' and 8 differ and 0x10 and 16
// do not.
func meaning(v *aegaeon.Value) string {
	have := sortOf(v)
	if have == isInt || have == isFloat {
		if n, err := strconv.ParseInt(strings.ReplaceAll(v.Text, "_", ""), 0, 64); err == nil {
			return "number " + strconv.FormatInt(n, 10)
		}
		if n, ok := number(v); ok {
			return "number " + strconv.FormatFloat(n, 'g', -1, 64)
		}
	}
	switch {
	case have == isBool && slices.Contains([]string{"true", "yes", "on"}, strings.ToLower(v.Text)):
		return "true"
	case have == isBool || have == isNull:
		return string(have)
	}
	return "text " + v.Text
}
