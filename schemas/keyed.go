package schemas

import "strings"

// What of an experiment enters keys. Whoever makes a key and whoever checks one
// later read it from here.

// KeyedDefinition is a stage's configuration as it enters keys: as written,
// without unkeyed fields and without literal paths (their content enters as an
// input under the same name). False when the kind is not known.
func KeyedDefinition(def StageDef) (map[string]any, bool) {
	fields, ok := FieldsOf(def.Kind)
	return KeyedFields(fields, def.Config), ok
}

// KeyedService is a service's configuration as it enters keys. False when the
// engine is not known.
func KeyedService(svc Service) (map[string]any, bool) {
	fields, ok := EngineFields(svc.Engine)
	m := KeyedFields(fields, svc.Config)
	m["engine"], m["restart"] = svc.Engine, svc.Restart
	return m, ok
}

// KeyedFields copies a configuration without what changes no result: unkeyed
// fields, URLs, ports, and paths whose content stands for them.
func KeyedFields(fields []Field, config map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range config {
		out[k] = v
	}
	for _, f := range fields {
		v, ok := out[f.Name]
		switch {
		case !ok:
		case f.Unkeyed, f.Type == TypeURL, f.Type == TypePort:
			delete(out, f.Name)
		case f.Type == TypePath:
			out[f.Name] = KeyedPath(f.Name, v)
		case f.Type == TypePathMap:
			m, _ := v.(map[string]any)
			paths := map[string]any{}
			for name, p := range m {
				paths[name] = KeyedPath(f.Name+"/"+name, p)
			}
			out[f.Name] = paths
		}
	}
	return out
}

// KeyedPath keeps a path that refers to a parameter, stage or source, whose
// content enters the key by that name, and replaces any other by the name its
// digest stands under.
func KeyedPath(name string, v any) any {
	s, ok := v.(string)
	if ok && len(References(s)) > 0 && !strings.Contains(s, "${machine.") {
		return s
	}
	return "input:" + name
}

// ReferredParams are the parameters that v refers to, with their values.
func ReferredParams(v any, params map[string]any) map[string]any {
	used := map[string]any{}
	for _, ref := range References(v) {
		if ref.Namespace == RefParam && len(ref.Names) == 1 {
			if x, ok := params[ref.Names[0]]; ok {
				used[ref.Names[0]] = x
			}
		}
	}
	return used
}

// ParamPath returns the path of a path parameter, as written.
func ParamPath(v any) (string, bool) {
	m, ok := v.(map[string]any)
	if !ok {
		return "", false
	}
	p, ok := m["path"].(string)
	return p, ok
}

// TrialParams are the parameters as a trial at a point of the matrix sees them.
func TrialParams(params, point map[string]any) map[string]any {
	out := make(map[string]any, len(params))
	for k, v := range params {
		out[k] = v
	}
	for k, v := range point {
		if _, isPath := ParamPath(params[k]); isPath {
			if p, ok := v.(string); ok {
				v = map[string]any{"path": p}
			}
		}
		out[k] = v
	}
	return out
}
