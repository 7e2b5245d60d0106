package pipeline

import (
	"fmt"

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
		if p, ok := schemas.ParamPath(v); ok {
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
		if schemas.KeyedPath(name, w) == "input:"+name {
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

// keyedDefinition and serviceDefinition leave a kind or engine that is unknown to
// the loader, which has refused it.
func keyedDefinition(def schemas.StageDef) map[string]any {
	m, _ := schemas.KeyedDefinition(def)
	return m
}

func serviceDefinition(svc schemas.Service) map[string]any {
	m, _ := schemas.KeyedService(svc)
	return m
}
