package emulated

import "net/http"

var kindSchemas = map[kind]string{kindText: "string", kindInt: "integer", kindNumber: "number", kindBool: "boolean", kindList: "array", kindTable: "object"}

// schema is a form as a JSON Schema; strict says that other fields are refused.
func (f form) schema(strict bool) map[string]any {
	properties, required := map[string]any{}, []string{}
	for name, spec := range f {
		p := map[string]any{}
		if word := kindSchemas[spec.kind]; word != "" {
			p["type"] = word
			if spec.null {
				p["type"] = []string{word, "null"}
			}
		}
		if spec.min != nil {
			p["minimum"] = *spec.min
		}
		properties[name] = p
		if spec.required {
			required = append(required, name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties, "required": required}
	if strict {
		out["additionalProperties"] = false
	}
	return out
}

// openapi answers with a description of what may be posted where, made from the
// forms that requests are held against.
func openapi(title string, posts map[string]map[string]any, gets ...string) http.HandlerFunc {
	responses := map[string]any{"200": map[string]any{"description": "Successful Response"}}
	paths := map[string]any{}
	for path, schema := range posts {
		paths[path] = map[string]any{"post": map[string]any{
			"requestBody": map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": schema}}},
			"responses":   responses,
		}}
	}
	for _, path := range gets {
		paths[path] = map[string]any{"get": map[string]any{"responses": responses}}
	}
	doc := map[string]any{"openapi": "3.1.0", "info": map[string]any{"title": title, "version": Name}, "paths": paths}
	return func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, doc) }
}
