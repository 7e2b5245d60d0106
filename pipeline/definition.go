package pipeline

import (
	"fmt"
	"strings"

	"assay/schemas"
)

// withParams substitutes ${param.x} only; what else a value refers to stays as
// written. A reference that cannot be resolved stays too: the loader refuses it.
func withParams(config map[string]any, params map[string]any) map[string]any {
	out, err := schemas.Substitute(config, func(ref schemas.Reference) (any, error) {
		if ref.Namespace != "param" || len(ref.Names) != 1 {
			return ref.Text, nil
		}
		v, ok := params[ref.Names[0]]
		if !ok {
			return ref.Text, nil
		}
		if p, ok := paramPath(v); ok {
			return p, nil
		}
		return v, nil
	})
	m, ok := out.(map[string]any)
	if err != nil || !ok {
		return config
	}
	return m
}

// paramPath returns the path of a path parameter, as written.
func paramPath(v any) (string, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return "", false
	}
	p, ok := m["path"].(string)
	return p, ok
}

// referredParams are the parameters that v refers to, with their values.
func referredParams(v any, params map[string]any) map[string]any {
	used := map[string]any{}
	for _, ref := range schemas.References(v) {
		if ref.Namespace == "param" && len(ref.Names) == 1 {
			if x, ok := params[ref.Names[0]]; ok {
				used[ref.Names[0]] = x
			}
		}
	}
	return used
}

// keyedDefinition is a stage's configuration as it enters keys: as written,
// without unkeyed fields and without literal paths (their content enters as an
// input under the same name).
func keyedDefinition(def schemas.StageDef) map[string]any {
	fields, _ := schemas.FieldsOf(def.Kind)
	return keyedFields(fields, def.Config)
}

func serviceDefinition(svc schemas.Service) map[string]any {
	fields, _ := schemas.EngineFields(svc.Engine)
	m := keyedFields(fields, svc.Config)
	m["engine"], m["restart"] = svc.Engine, svc.Restart
	return m
}

func keyedFields(fields []schemas.Field, config map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range config {
		out[k] = v
	}
	for _, f := range fields {
		v, ok := out[f.Name]
		switch {
		case !ok:
		case f.Unkeyed, f.Type == schemas.TypeURL, f.Type == schemas.TypePort:
			delete(out, f.Name)
		case f.Type == schemas.TypePath:
			out[f.Name] = keyedPath(f.Name, v)
		case f.Type == schemas.TypePathMap:
			m, _ := v.(map[string]any)
			paths := map[string]any{}
			for name, p := range m {
				paths[name] = keyedPath(f.Name+"/"+name, p)
			}
			out[f.Name] = paths
		}
	}
	return out
}

// keyedPath keeps a path that refers to a parameter, stage or source, whose
// content enters the key by that name, and replaces any other by the name its
// digest stands under.
func keyedPath(name string, v any) any {
	s, ok := v.(string)
	if ok && len(schemas.References(s)) > 0 && !strings.Contains(s, "${machine.") {
		return s
	}
	return "input:" + name
}

// literalPaths lists the path keys of a resolved configuration that are not
// covered by a parameter, stage or source: logical name -> resolved path. The
// written form decides, the resolved one gives the path.
func literalPaths(kind string, written, resolved map[string]any) (map[string]string, error) {
	fields, _ := schemas.FieldsOf(kind)
	paths := map[string]string{}
	add := func(name string, w, r any) error {
		p, ok := r.(string)
		if !ok {
			return fmt.Errorf("%s: want a path, have %v", name, r)
		}
		if keyedPath(name, w) == "input:"+name {
			paths[name] = p
		}
		return nil
	}
	for _, f := range fields {
		w, ok := written[f.Name]
		if !ok {
			continue
		}
		switch f.Type {
		case schemas.TypePath:
			if err := add(f.Name, w, resolved[f.Name]); err != nil {
				return nil, err
			}
		case schemas.TypePathMap:
			wm, _ := w.(map[string]any)
			rm, _ := resolved[f.Name].(map[string]any)
			for name := range wm {
				if err := add(f.Name+"/"+name, wm[name], rm[name]); err != nil {
					return nil, err
				}
			}
		}
	}
	return paths, nil
}
