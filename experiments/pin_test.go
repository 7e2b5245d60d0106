package experiments

import (
	"strings"
	"testing"

	"assay/schemas"
)

func TestPinnedFingerprints(t *testing.T) {
	const run = "[stage.s]\nkind = \"command\"\nargv = [\"true\"]\n[model.m]\nname = \"n\"\n"
	pin := schemas.DigestOf([]byte("x"))
	for text, want := range map[string]string{
		"checkpoint = \"c\"\nfingerprint = \"" + string(pin) + "\"":                               "",
		"checkpoint = \"c\"\nfingerprint = \"" + string(pin) + "\"\nfingerprint_level = \"full\"": "",
		"fingerprint = \"" + string(pin) + "\"":                                                   `t.toml:15:1: model m: a fingerprint is pinned and no checkpoint is named`,
		"checkpoint = \"c\"\nfingerprint = \"sha256:12\"":                                         `t.toml:16:15: fingerprint: "sha256:12": want sha256: and 64 lower-case hex digits`,
		"checkpoint = \"c\"\nfingerprint = \"" + strings.ToUpper(string(pin)) + "\"":              `hex digits`,
		"checkpoint = \"c\"\nfingerprint = \"" + string(pin) + "\"\nfingerprint_level = \"fill\"": `t.toml:17:21: fingerprint_level: "fill" is not one of header, full (did you mean "full"?)`,
	} {
		l, err := load(t, head+run+text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", text, err)
		case want == "" && (l.Experiment.Model["m"].Fingerprint != pin || l.Experiment.Model["m"].Level() != map[bool]string{true: "full", false: "header"}[strings.Contains(text, "full")]):
			t.Errorf("%q: %+v", text, l.Experiment.Model["m"])
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
