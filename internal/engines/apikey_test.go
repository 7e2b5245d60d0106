package engines

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

const testKey = "sk-live-4f9a7c2e81d0b356"

// TestTheKeyIsInNoFile starts from the configuration as the pipeline resolves it.
func TestTheKeyIsInNoFile(t *testing.T) {
	l := Launch{Engine: Emulated, LogDir: t.TempDir(), Secrets: []string{testKey},
		Config: map[string]any{"engine": "emulated", "api_key": testKey, "models": []any{map[string]any{"name": "m"}}}}
	file, err := writeEmulatedConfig(l, started{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), `"m"`) || strings.Contains(string(b), testKey) || strings.Contains(string(b), "api_key") {
		t.Errorf("%v: %s", err, b)
	}
	spec, err := processSpec(Launch{Engine: OpenAI, Config: l.Config}, settings{Command: []string{"server", "--port", "{port}"}}, started{}, 1234)
	if err != nil || strings.Contains(strings.Join(append(spec.Argv, spec.Env...), " "), testKey) {
		t.Errorf("%v: %v %v", err, spec.Argv, spec.Env)
	}
}

// TestAServiceThatWantsAKey ends at once where waiting would change nothing, and says
// nothing of the key, whatever the service says.
func TestAServiceThatWantsAKey(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+testKey:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"named ` + testKey + `"}]}`))
		}
	}))
	defer s.Close()
	for key, want := range map[string]string{"": "it wants an API key", "sk-of-somebody-else": "it does not take the API key", testKey: "holds a secret"} {
		config := map[string]any{"url": s.URL, "ready_timeout": "1m"}
		if key != "" {
			config["api_key"] = key
		}
		begun := time.Now()
		_, err := Start(context.Background(), Launch{Service: "x", Engine: OpenAI, Config: config, LogDir: t.TempDir(), Secrets: []string{testKey}})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), testKey) || time.Since(begun) > 30*time.Second {
			t.Errorf("%q after %s: %v, want %q", key, time.Since(begun), err, want)
		}
	}
}
