package aegaeon

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"assay/internal/engines/aegaeon"
)

const (
	remedyEngines = "set num_engines alone with num_prefill_engines: 0 and num_decode_engines: 0, or num_engines: 0 with at least one of each"
	twoMiB        = 2 << 20
)

// rules are about keys together. One whose value is wrong by itself counts as not
// given: it has its own finding.
func (c *checker) rules(doc *aegaeon.Value) {
	server := doc.Get("server")
	if server == nil || server.Kind != aegaeon.Table {
		if server == nil {
			c.of(doc).fail("aegaeon.yaml", "add the table server", "there is no server, only defaults: 128 GiB of pinned memory among them")
		}
		server = &aegaeon.Value{Kind: aegaeon.Table, Line: doc.Line, Column: doc.Column}
	}
	c.engines(server)
	names := c.models(doc)
	c.startup(server.Get("startup_models"), names)
	c.graphs(server)
	c.devices(doc.Get("devices"))
}

// whole is a key's whole number, or what stands for it.
func whole(table *aegaeon.Value, name string, otherwise int64) int64 {
	v := table.Get(name)
	if v == nil || v.Kind != aegaeon.Scalar || sortOf(v) != isInt || trap(v) != "" {
		return otherwise
	}
	if n, err := strconv.ParseInt(strings.ReplaceAll(v.Text, "_", ""), 0, 64); err == nil {
		return n
	}
	return otherwise
}

func (c *checker) engines(server *aegaeon.Value) {
	simple, p, d := whole(server, "num_engines", 0), whole(server, "num_prefill_engines", 1), whole(server, "num_decode_engines", 1)
	left := ""
	for _, name := range []string{"num_prefill_engines", "num_decode_engines"} {
		if server.Get(name) == nil {
			left = " (1 when left out)"
		}
	}
	switch where := server.Get("num_engines"); {
	case simple > 0 && (p != 0 || d != 0):
		c.of(where).fail("aegaeon.engines", remedyEngines, "%d simple engines stand beside %d prefill and %d decode engines%s", simple, p, d, left)
	case simple == 0 && (p < 1 || d < 1):
		c.of(server).fail("aegaeon.engines", remedyEngines, "%d prefill and %d decode engines%s: want one of each at least, or simple ones", p, d, left)
	}
	if tp := server.Get("tensor_parallel_size"); whole(server, "tensor_parallel_size", 1) > 1 {
		c.of(tp).fail("aegaeon.tensor-parallel", "set it to 1", "tensor_parallel_size is %s: only 1 is supported", tp.Text)
	}
	if server.Get("cpu_num_slabs") == nil {
		c.of(server).fail("aegaeon.slabs-default", "set cpu_num_slabs; 8 slabs of 1 GiB are a start", "cpu_num_slabs is not set: 128 slabs, 128 GiB of pinned memory, are the default")
	}
	if server.Get("model_cache_size_gb") == nil || whole(server, "model_cache_size_gb", 1) == 0 {
		c.of(server).warn("aegaeon.model-cache-default", "set model_cache_size_gb to 1.2 times the weights of all models that are cached together",
			"model_cache_size_gb is not set: it follows from the models that start-up loads, and cannot grow later")
	}
	if v := server.Get("dummy_weights"); v != nil && v.Plain && slices.Contains([]string{"true", "yes", "on"}, strings.ToLower(v.Text)) {
		c.of(v).fail("aegaeon.dummy-weights", "set it to false", "dummy_weights: with placeholder weights neither tokens nor times mean anything")
	}
	if v := server.Get("decode_work_stealing"); v != nil && v.Plain && strings.EqualFold(v.Text, "true") && d < 2 {
		c.of(v).warn("aegaeon.stealing", "use two decode engines or more, or leave it out", "decode_work_stealing has no effect with %d decode engines", d)
	}
	if n := whole(server, "nnodes", 1); n > 1 {
		c.of(server.Get("nnodes")).add("aegaeon.nodes-equal", "info", "compare files and variables of all nodes",
			"%d nodes: that paths, hooks, device numbers and objectives are equal on all of them cannot be seen from one", n)
	}
}

func (c *checker) models(doc *aegaeon.Value) []string {
	list := doc.Get("models")
	if list == nil || list.Kind != aegaeon.List {
		if list == nil {
			c.of(doc).fail("aegaeon.model-name", "list the models, with a name each", "there are no models")
		}
		return nil
	}
	if len(list.Items) == 0 {
		c.of(list).fail("aegaeon.model-name", "list the models, with a name each", "models is empty")
	}
	var names []string
	ids := map[string]int{}
	for i, m := range list.Items {
		if m.Kind != aegaeon.Table {
			continue
		}
		names = append(names, c.model(i, m, names))
		if id := m.Get("id"); id != nil && sortOf(id) != isNull {
			if before, twice := ids[id.Text]; twice {
				c.of(id).fail("aegaeon.model-id", "give every model another id", "models[%d].id: %.40s stands in line %d already", i, id.Text, before)
			}
			ids[id.Text] = id.Line
		}
	}
	withID := 0
	for _, m := range list.Items {
		if id := m.Get("id"); id != nil && sortOf(id) != isNull {
			withID++
		}
	}
	if withID > 0 && withID < len(list.Items) {
		c.of(list).fail("aegaeon.model-id", "give all models an id, or none", "%d of %d models have an id", withID, len(list.Items))
	}
	return names
}

func (c *checker) model(i int, m *aegaeon.Value, before []string) string {
	name := m.Get("name")
	switch {
	case name == nil:
		c.of(m).fail("aegaeon.model-name", "give it the name that requests use", "models[%d] has no name", i)
		return ""
	case name.Kind != aegaeon.Scalar || strings.TrimSpace(name.Text) == "":
		c.of(name).fail("aegaeon.model-name", "give it the name that requests use", "models[%d].name is empty", i)
	case slices.Contains(before, name.Text):
		c.of(name).fail("aegaeon.model-name", "give every model another name", "models[%d].name: %.60q stands there twice", i, name.Text)
	}
	path := m.Get("path")
	switch {
	case path == nil || path.Text == "":
		c.of(m).fail("aegaeon.model-path", "set path to the folder of the checkpoint", "models[%d] %.60s has no path: its weights are downloaded", i, name.Text)
	case !filepath.IsAbs(path.Text):
		c.of(path).fail("aegaeon.model-path", "write the absolute path", "models[%d].path: %.80q is relative: its weights may be downloaded", i, path.Text)
	}
	if p := m.Get("params"); p != nil && p.Kind == aegaeon.Scalar {
		if n, ok := number(p); ok && n > 1024 {
			c.of(p).fail("aegaeon.params", "divide the number of parameters by 2^30, or leave params out", "models[%d].params: %.40s is in units of 2^30 parameters", i, p.Text)
		}
	}
	if a := m.Get("profile"); a != nil {
		c.alias(a, "models", i)
	}
	return name.Text
}

// alias checks the name of a folder of profiles.
func (c *checker) alias(a *aegaeon.Value, list string, i int) {
	if filepath.IsAbs(a.Text) || slices.Contains(strings.Split(a.Text, "/"), "..") {
		c.of(a).fail("aegaeon.profile-alias", "write a name below the folder of profiles", "%s[%d].profile: %.80q is absolute or leads upwards", list, i, a.Text)
	}
}

func (c *checker) startup(list *aegaeon.Value, names []string) {
	if list == nil || list.Kind != aegaeon.List {
		return
	}
	seen := map[string]bool{}
	for i, v := range list.Items {
		switch {
		case v.Kind != aegaeon.Scalar:
			continue
		case v.Text == "":
			c.of(v).fail("aegaeon.startup-models", "remove it", "startup_models[%d] is empty", i)
		case seen[v.Text]:
			c.of(v).fail("aegaeon.startup-models", "name it once", "startup_models[%d]: %.60q stands there twice", i, v.Text)
		case !slices.Contains(names, v.Text):
			c.of(v).fail("aegaeon.startup-models", "name models of the list models", "startup_models[%d]: %.60q is none of the models", i, v.Text)
		}
		seen[v.Text] = true
	}
}

func (c *checker) devices(list *aegaeon.Value) {
	if list == nil || list.Kind != aegaeon.List {
		return
	}
	for i, d := range list.Items {
		if d.Kind != aegaeon.Table {
			continue
		}
		for _, name := range []string{"name", "memory"} {
			if v := d.Get(name); v == nil || (v.Kind == aegaeon.Scalar && v.Text == "") {
				c.of(d).fail("aegaeon.device", "give it a name and its memory in GiB", "devices[%d] has no %s", i, name)
			}
		}
		if a := d.Get("profile"); a != nil {
			c.alias(a, "devices", i)
		}
	}
}
