package service

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"assay/schemas"
)

// maxDocument is more than any answer about a service's state has.
const maxDocument = 16 << 20

// Documents are what the service has answered with. One that is nil was not asked
// for and is not looked at.
type Documents struct {
	Models  []byte   // /v1/models
	Metrics []byte   // /v1/aegaeon/metrics
	Runtime []byte   // /v1/aegaeon/runtime
	Power   []byte   // /v1/aegaeon/gpu-power
	Deploys [][]byte // answers to deployments
	Answer  *Answer
}

// Answer is what one request, not streamed, was answered with, and what it asked for.
type Answer struct {
	Model        string
	Status       int
	Body         []byte
	PromptTokens int // 0: not counted
	OutputTokens int
}

// Want is what the service has to be ready for.
type Want struct {
	Models []string
	Nodes  int // 0: not known
}

// Check judges the documents; subject names the service.
func Check(subject string, d Documents, want Want) []schemas.Finding {
	c := &checker{subject: subject}
	if d.Models != nil {
		c.models(d.Models, want.Models)
	}
	if d.Metrics != nil {
		c.limits(d.Metrics)
	}
	if d.Runtime != nil {
		c.runtime(d.Runtime, want)
	}
	for _, b := range d.Deploys {
		c.deploy(b)
	}
	if d.Power != nil {
		c.power(d.Power)
	}
	if d.Answer != nil {
		c.answer(*d.Answer)
	}
	return c.findings
}

type checker struct {
	subject  string
	findings []schemas.Finding
}

func (c *checker) add(id string, s schemas.Severity, remedy, format string, args ...any) {
	c.findings = append(c.findings, schemas.Finding{ID: id, Severity: s, Subject: c.subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (c *checker) fail(id, remedy, format string, args ...any) {
	c.add(id, schemas.SeverityError, remedy, format, args...)
}

func (c *checker) unknown(id, remedy, format string, args ...any) {
	c.add(id, schemas.SeverityUnknown, remedy, format, args...)
}

func (c *checker) pass(id, format string, args ...any) {
	c.add(id, schemas.SeverityPass, "", format, args...)
}

// object decodes a document, whatever else it holds.
func (c *checker) object(what string, b []byte) (map[string]json.RawMessage, bool) {
	var out map[string]json.RawMessage
	if len(b) > maxDocument {
		c.fail("service.document", remedyDocument, "%s: larger than %d bytes", what, maxDocument)
		return nil, false
	}
	if err := json.Unmarshal(b, &out); err != nil || out == nil {
		c.fail("service.document", remedyDocument, "%s: not a JSON object: %.60q", what, b)
		return nil, false
	}
	return out, true
}

func (c *checker) models(b []byte, want []string) {
	doc, ok := c.object("/v1/models", b)
	if !ok {
		return
	}
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(doc["data"], &list); err != nil {
		c.fail("service.document", remedyDocument, "/v1/models: data is no list of models")
		return
	}
	var have []string
	for _, m := range list {
		have = append(have, m.ID)
	}
	bad := false
	for _, name := range want {
		if slices.Contains(have, name) {
			continue
		}
		bad = true
		hint := ""
		if near := schemas.Nearest(name, have); near != "" {
			hint = fmt.Sprintf("; it has %q", near)
		}
		c.fail("service.models", remedyModels, "model %q is not registered%s", name, hint)
	}
	if !bad {
		c.pass("service.models", "has the %d models asked for", len(want))
	}
}

func (c *checker) limits(b []byte) {
	doc, ok := c.object("/v1/aegaeon/metrics", b)
	if !ok {
		return
	}
	raw, there := doc["limits"]
	var limits map[string]any
	if !there || json.Unmarshal(raw, &limits) != nil {
		c.unknown("service.limits", remedyLimits, "metrics do not say whether rates are limited")
		return
	}
	if set := setLimits("", limits); len(set) > 0 {
		slices.Sort(set)
		c.fail("service.limits", remedyLimits, "rates are limited: %s", strings.Join(set, ", "))
		return
	}
	c.pass("service.limits", "no rate is limited")
}

// setLimits lists what is neither null, 0, false nor empty.
func setLimits(at string, limits map[string]any) []string {
	var out []string
	for name, v := range limits {
		switch v := v.(type) {
		case nil:
		case map[string]any:
			out = append(out, setLimits(at+name+".", v)...)
		case float64:
			if v != 0 {
				out = append(out, at+name+" = "+schemas.Decimal(v))
			}
		default:
			if text := fmt.Sprint(v); text != "" && text != "false" && text != "[]" {
				out = append(out, fmt.Sprintf("%s%s = %.40s", at, name, text))
			}
		}
	}
	return out
}

func (c *checker) deploy(b []byte) {
	doc, ok := c.object("deployment", b)
	if !ok {
		return
	}
	var status string
	if err := json.Unmarshal(doc["status"], &status); err != nil {
		c.unknown("service.deploy", remedyDeploy, "the answer to a deployment has no status: %.80q", b)
		return
	}
	failed := strings.TrimSpace(string(doc["failed"]))
	if status != "ok" || !slices.Contains([]string{"", "null", "[]", "{}"}, strings.Join(strings.Fields(failed), "")) {
		c.fail("service.deploy", remedyDeploy, "a deployment ended with status %.20q; failed: %.200s", status, failed)
		return
	}
	c.pass("service.deploy", "a deployment is whole")
}

func (c *checker) power(b []byte) {
	doc, ok := c.object("/v1/aegaeon/gpu-power", b)
	if !ok {
		return
	}
	var gpus []struct {
		Index json.RawMessage `json:"index"`
		Power *float64        `json:"power_w"`
	}
	if err := json.Unmarshal(doc["gpus"], &gpus); err != nil {
		c.fail("service.document", remedyDocument, "/v1/aegaeon/gpu-power: gpus is no list of GPUs with their power")
		return
	}
	if len(gpus) == 0 {
		c.fail("service.energy", remedyEnergy, "no GPU is reported: its host cannot ask them, or has none")
		return
	}
	bad := false
	for i, g := range gpus {
		if g.Power == nil || !(*g.Power >= 0) || math.IsInf(*g.Power, 0) {
			bad = true
			c.fail("service.energy", remedyEnergy, "GPU %d (index %.20s) reports no power", i, g.Index)
		}
	}
	if !bad {
		c.pass("service.energy", "%d GPUs report their power", len(gpus))
	}
}

func (c *checker) answer(a Answer) {
	if a.Status != 200 {
		c.fail("service.request", remedyRequest, "model %q answered with status %d: %.200q", a.Model, a.Status, a.Body)
		return
	}
	doc, ok := c.object("answer of "+a.Model, a.Body)
	if !ok {
		return
	}
	var choices []struct {
		Finish   string  `json:"finish_reason"`
		TokenIDs []int64 `json:"token_ids"`
	}
	var usage struct {
		Prompt     *int `json:"prompt_tokens"`
		Completion *int `json:"completion_tokens"`
	}
	if json.Unmarshal(doc["choices"], &choices) != nil || len(choices) != 1 {
		c.fail("service.request", remedyRequest, "model %q: the answer has no list of one choice", a.Model)
		return
	}
	if len(doc["usage"]) == 0 || json.Unmarshal(doc["usage"], &usage) != nil || usage.Completion == nil {
		c.unknown("service.request", remedyRequest, "model %q: the answer does not say how many tokens it has", a.Model)
		return
	}
	switch ids := choices[0].TokenIDs; {
	case *usage.Completion != a.OutputTokens:
		c.fail("service.request", remedyRequest, "model %q generated %d tokens, asked were %d", a.Model, *usage.Completion, a.OutputTokens)
	case len(ids) > 0 && len(ids) != a.OutputTokens:
		c.fail("service.request", remedyRequest, "model %q returned %d token ids for %d tokens", a.Model, len(ids), a.OutputTokens)
	case a.PromptTokens > 0 && usage.Prompt != nil && *usage.Prompt != a.PromptTokens:
		c.fail("service.request", remedyRequest, "model %q counted %d tokens of a prompt of %d", a.Model, *usage.Prompt, a.PromptTokens)
	case choices[0].Finish != "length":
		c.fail("service.request", remedyRequest, "model %q ended with finish_reason %.20q, not length", a.Model, choices[0].Finish)
	default:
		c.pass("service.request", "model %q answers one request exactly", a.Model)
	}
}
