package experiments

import (
	"encoding/json"
	"fmt"

	"assay/schemas"
)

// experiment makes the effective experiment of a checked tree: defaults filled
// in, empty optional tables left out, so that it encodes and loads again equal.
func (c *checker) experiment() (schemas.Experiment, error) {
	if c.tree["trials"] == nil {
		c.tree["trials"] = table{}
	}
	out := schemas.ApplyDefaults(schemas.ExperimentFields(), c.tree)
	stages, _ := out["stage"].(table)
	for name, v := range stages {
		t := v.(table)
		fields, _ := schemas.FieldsOf(t["kind"].(string))
		t = schemas.ApplyDefaults(fields, t)
		t["scope"] = c.scope(t)
		stages[name] = withoutEmpty(t, "needs")
	}
	services, _ := out["service"].(table)
	for name, v := range services {
		t := v.(table)
		fields, _ := schemas.EngineFields(t["engine"].(string))
		services[name] = withoutEmpty(schemas.ApplyDefaults(fields, t), "needs", "devices")
	}
	out = withoutEmpty(out, "params", "matrix", "model", "service", "claim")
	b, err := json.Marshal(out)
	if err != nil {
		return schemas.Experiment{}, err
	}
	var exp schemas.Experiment
	if err := json.Unmarshal(b, &exp); err != nil {
		return schemas.Experiment{}, fmt.Errorf("effective experiment: %w", err)
	}
	return exp, nil
}

func withoutEmpty(t table, keys ...string) table {
	for _, k := range keys {
		switch x := t[k].(type) {
		case table:
			if len(x) == 0 {
				delete(t, k)
			}
		case []any:
			if len(x) == 0 {
				delete(t, k)
			}
		}
	}
	return t
}
