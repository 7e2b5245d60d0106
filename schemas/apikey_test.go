package schemas

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestAPIKeyIsNeverPrinted(t *testing.T) {
	const secret = "sk-never-printed-0123"
	key, err := NewAPIKey(" " + secret + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(key.Header()["Authorization"], "|"); got != "Bearer "+secret {
		t.Errorf("header %q", got)
	}
	asking := AskingOf(map[string]any{FieldAPIKey: secret})
	if !asking.Key.Given() {
		t.Error("a service's key was not read")
	}
	hidden := struct{ inner Asking }{asking}
	b, err := json.Marshal(asking)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{string(b), key.String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, v := range []any{key, asking, &asking, hidden} {
			texts = append(texts, fmt.Sprintf(verb, v))
		}
	}
	for _, text := range texts {
		if strings.Contains(text, secret) || strings.Contains(text, fmt.Sprintf("%x", secret)) {
			t.Errorf("printed: %s", text)
		}
	}
}

func TestAPIKeysThatCannotBeSent(t *testing.T) {
	for _, value := range []string{"", " \n", "sk-two words", "sk-line\r\nX-Evil: 1", "sk-ümlaut-0123", "short"} {
		key, err := NewAPIKey(value)
		if err == nil || key.Given() || key.Header() != nil {
			t.Errorf("%q was taken", value)
		} else if s := strings.TrimSpace(value); s != "" && strings.Contains(err.Error(), s) {
			t.Errorf("the error holds the key: %v", err)
		}
	}
	if (APIKey{}).Header() != nil || AskingOf(nil).Key.Given() {
		t.Error("no key is none")
	}
}

func TestSecretFieldsTakeAReferenceAlone(t *testing.T) {
	fields := []Field{apiKeyField()}
	for value, ok := range map[string]bool{
		"${secret.KEY}": true, "sk-literal-0123456789": false, "${param.key}": false, "Bearer ${secret.KEY}": false, "${secret.A}${secret.B}": false, "${machine.key}": false, "": false,
	} {
		found := CheckTable(fields, map[string]any{FieldAPIKey: value}, true)
		if (len(found) == 0) != ok {
			t.Errorf("%q: %v", value, found)
		}
		for _, v := range found {
			if strings.Contains(v.Message, "sk-literal") {
				t.Errorf("the message repeats the key: %s", v.Message)
			}
		}
	}
	if err := CheckValue(apiKeyField(), "sk-resolved-0123"); err != nil {
		t.Errorf("a resolved key: %v", err)
	}
	if KeyedFields(fields, map[string]any{FieldAPIKey: "${secret.KEY}"})[FieldAPIKey] != nil {
		t.Error("it enters keys")
	}
}
