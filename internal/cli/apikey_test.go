package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"assay/internal/redact"
)

const testKey = "sk-live-4f9a7c2e81d0b356"

// keyedServer answers nobody without the key, and says it back wherever it can.
type keyedServer struct {
	*httptest.Server
	denied atomic.Int64
	mu     sync.Mutex
	asked  map[string]int // with the key, by method and path
	posts  int
}

func newKeyedServer(t *testing.T) *keyedServer {
	t.Helper()
	s := &keyedServer{asked: map[string]int{}}
	s.Server = httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

func (s *keyedServer) answer(w http.ResponseWriter, r *http.Request) {
	coded := base64.StdEncoding.EncodeToString([]byte("Bearer " + testKey))
	if r.Header.Get("Authorization") != "Bearer "+testKey {
		s.denied.Add(1)
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	s.asked[r.Method+" "+r.URL.Path]++
	n := s.posts
	if strings.HasSuffix(r.URL.Path, "/completions") {
		s.posts++
	}
	s.mu.Unlock()
	switch r.URL.Path {
	case "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
	case "/metrics":
		fmt.Fprintf(w, "# HELP requests of %s\nrequests_total{key=%q,coded=%q} 3\nbroken%s %s\n", testKey, testKey, coded, testKey, testKey)
	case "/tokenize":
		fmt.Fprint(w, `{"count":8}`)
	case "/v1/aegaeon/runtime":
		fmt.Fprintf(w, `{"key":%q,"request_routing":{"total":0}}`, coded)
	case "/v1/aegaeon/events":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: %s\ndata: {\"key\":%q}\n\n", testKey, coded)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "/reset_prefix_cache":
		http.Error(w, strings.Repeat("x", 190)+testKey, http.StatusTeapot)
	case "/start_profile", "/stop_profile":
	case "/v1/completions", "/v1/chat/completions":
		s.complete(w, n, coded)
	default:
		http.Error(w, "no such path for "+testKey, http.StatusNotFound)
	}
}

// complete echoes the key in one way after another; the first request of all is a
// warm-up and gets an answer.
func (s *keyedServer) complete(w http.ResponseWriter, n int, coded string) {
	events := func(list ...string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range list {
			fmt.Fprintf(w, "data: %s\n\n", e)
			w.(http.Flusher).Flush()
		}
	}
	text := func(t string) string { return fmt.Sprintf(`{"choices":[{"text":%q}]}`, t) }
	const end = `{"choices":[{"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":8,"completion_tokens":2}}`
	switch n % 6 {
	case 0:
		events(text("a"), text("b"), end, "[DONE]")
	case 1:
		http.Error(w, "denied: "+testKey+strings.Repeat(" ", 430)+coded, http.StatusInternalServerError)
	case 2:
		events(text(testKey[:9]), text(testKey[9:]), end, "[DONE]")
	case 3:
		events(text("a"), fmt.Sprintf(`{"error":{"message":"key %s, in other words %s"}}`, testKey, coded))
	case 4:
		events(text(coded[:11]), text(coded[11:]), fmt.Sprintf(`{"choices":[{"text":"","finish_reason":%q}]}`, coded), "[DONE]")
	case 5:
		events(text("a"), fmt.Sprintf(`{"usage":{"completion_tokens":%q}}`, testKey))
	}
}

const keyedExperiment = `schema = "assay/experiment/v1"
name = "keyed"
[service.engine]
engine = "aegaeon"
url = %q
api_key = "${secret.KEY}"
prompts = "text"
tokenize = { style = "vllm" }
ready_path = "/v1/models"
[stage.check]
kind = "preflight"
[stage.warm]
kind = "warmup"
needs = ["check"]
service = "engine"
count = 1
output_tokens = 2
[stage.load]
kind = "measure"
needs = ["warm"]
service = "engine"
concurrency = 2
requests = 18
input = { tokens = 8 }
output = { tokens = 2 }
ignore_eos = false
[stage.load.observe]
metrics = "on"
profile = true
[[stage.load.observe.reset]]
path = "/reset_prefix_cache"
on_fail = "mark"
`

// workFolder holds the experiment, and the machine file that says where the key is.
func workFolder(t *testing.T, url string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"keyed.toml":         fmt.Sprintf(keyedExperiment, url),
		"assay.machine.toml": "schema = \"assay/machine/v1\"\n[secrets]\nKEY = \"env:SERVICE_KEY\"\n",
		"a.csv":              "Request Time,Model Name,Input Length,Output Length\n00:00:00.000,m,8,2\n00:00:00.010,m,8,2\n00:00:00.020,m,8,2\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func runAssay(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	var out bytes.Buffer
	code = Run(context.Background(), args, nil, &out, &out)
	return code, out.String()
}

// holdsKey looks for the key, however it is written or packed, below a folder.
func holdsKey(t *testing.T, dir string) (files int) {
	t.Helper()
	secrets := redact.New(map[string]string{testKey: "#", testKey[:12]: "#"})
	err := filepath.WalkDir(dir, func(path string, de fs.DirEntry, err error) error {
		if err != nil || !de.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		files++
		if mark, err := secrets.FindDeep(f); err != nil || mark != "" {
			b, _ := os.ReadFile(path)
			t.Errorf("%s holds the key (%v): %.900s", path, err, b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestAPIKeyOfAService runs everything that asks a service, against one that wants a
// key and says it back, and looks for the key in all that is left.
func TestAPIKeyOfAService(t *testing.T) {
	server := newKeyedServer(t)
	dir := workFolder(t, server.URL)
	t.Setenv("SERVICE_KEY", testKey+"\n")
	code, said := runAssay(t, "run", "keyed.toml", "--tag", "keyed")
	if code != ExitOK {
		t.Fatalf("exit code %d: %s", code, said)
	}
	server.mu.Lock()
	for what, least := range map[string]int{"GET /v1/models": 1, "POST /v1/completions": 19, "POST /tokenize": 1, "GET /metrics": 2, "GET /v1/aegaeon/runtime": 2,
		"GET /v1/aegaeon/events": 1, "POST /reset_prefix_cache": 1, "POST /start_profile": 1, "POST /stop_profile": 1} {
		if server.asked[what] < least {
			t.Errorf("%s was asked %d times with the key, want %d or more", what, server.asked[what], least)
		}
	}
	server.mu.Unlock()
	if n := server.denied.Load(); n > 0 {
		t.Errorf("%d questions had no key", n)
	}
	for _, args := range [][]string{{"show", "keyed"}, {"show", "keyed", "--format", "json"}, {"plan", "keyed.toml", "--format", "json"}, {"explain", "keyed.toml"}, {"preflight", "keyed.toml"},
		{"extract", "keyed", filepath.Join(dir, "out")}, {"verify", "keyed"}} {
		code, more := runAssay(t, args...)
		if code != ExitOK {
			t.Errorf("%v: exit code %d: %s", args, code, more)
		}
		said += more
	}
	if strings.Contains(said, testKey) || strings.Contains(said, testKey[:12]) {
		t.Errorf("the key was printed: %s", said)
	}
	if n := holdsKey(t, dir); n < 20 {
		t.Errorf("only %d files were looked at", n)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "out", "report.json")); err != nil || !bytes.Contains(b, []byte(`"http_5xx": 3`)) {
		t.Errorf("the echoes were not all sent: %v", err)
	}
}

func TestAPIKeyOfAReplay(t *testing.T) {
	server := newKeyedServer(t)
	dir := workFolder(t, server.URL)
	t.Setenv("SERVICE_KEY", testKey)
	code, said := runAssay(t, "replay", "--csv", "a.csv", "--url", server.URL, "--api-key-env", "SERVICE_KEY")
	if code != ExitOK || server.denied.Load() != 0 || strings.Contains(said, testKey) {
		t.Errorf("exit code %d, %d denied: %s", code, server.denied.Load(), said)
	}
	holdsKey(t, dir)
	code, said = runAssay(t, "replay", "--csv", "a.csv", "--url", server.URL)
	if code != ExitFailed || !strings.Contains(said, "status 401: it wants an API key") {
		t.Errorf("without the key: exit code %d: %s", code, said)
	}
	code, said = runAssay(t, "replay", "--csv", "a.csv", "--url", server.URL, "--api-key-env", testKey)
	if code != ExitUsage || strings.Contains(said, testKey) || !strings.Contains(said, "not the key") {
		t.Errorf("the key itself: exit code %d: %s", code, said)
	}
	t.Setenv("SERVICE_KEY", "sk-of-somebody-else")
	code, said = runAssay(t, "replay", "--csv", "a.csv", "--url", server.URL, "--api-key-env", "SERVICE_KEY")
	if code != ExitFailed || !strings.Contains(said, "does not take the API key") || strings.Contains(said, "sk-of-somebody-else") {
		t.Errorf("a wrong key: exit code %d: %s", code, said)
	}
}

// TestAPIKeyThatCannotBeHad refuses before anything is started or asked.
func TestAPIKeyThatCannotBeHad(t *testing.T) {
	server := newKeyedServer(t)
	dir := workFolder(t, server.URL)
	for value, want := range map[string]string{"unset": "SERVICE_KEY is not set", " \n": "SERVICE_KEY is empty", "short": "fewer than 8 characters", "sk-two words-0123": "white space"} {
		t.Setenv("SERVICE_KEY", value)
		if value == "unset" {
			os.Unsetenv("SERVICE_KEY")
		}
		for _, args := range [][]string{{"run", "keyed.toml"}, {"run", "keyed.toml", "--preflight-only"}, {"preflight", "keyed.toml"}, {"replay", "--csv", "a.csv", "--url", server.URL, "--api-key-env", "SERVICE_KEY"}} {
			code, said := runAssay(t, args...)
			if code != ExitRefused || !strings.Contains(said, want) || strings.Contains(said, "two words-0123") {
				t.Errorf("%q: %v: exit code %d, want %q: %s", value, args, code, want, said)
			}
		}
	}
	if server.denied.Load() != 0 || len(server.asked) != 0 {
		t.Error("the service was asked")
	}
	text := strings.Replace(fmt.Sprintf(keyedExperiment, server.URL), "${secret.KEY}", testKey, 1)
	if err := os.WriteFile(filepath.Join(dir, "literal.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	code, said := runAssay(t, "run", "literal.toml")
	if code != ExitUsage || strings.Contains(said, testKey) || !strings.Contains(said, "literal.toml:6") {
		t.Errorf("a key in the file: exit code %d: %s", code, said)
	}
}

// TestAPIKeyIsNotCarriedOn redirects every question to another server.
func TestAPIKeyIsNotCarriedOn(t *testing.T) {
	var carried atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { carried.Add(1) }))
	defer other.Close()
	inner := newKeyedServer(t)
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" || r.URL.Path == "/tokenize" {
			inner.answer(w, r)
			return
		}
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer away.Close()
	workFolder(t, away.URL)
	t.Setenv("SERVICE_KEY", testKey)
	for _, args := range [][]string{{"run", "keyed.toml"}, {"replay", "--csv", "a.csv", "--url", away.URL, "--api-key-env", "SERVICE_KEY"}, {"probe", "--base-url", away.URL, "--api-key-env", "SERVICE_KEY"}} {
		if code, said := runAssay(t, args...); code != ExitFailed || strings.Contains(said, testKey) {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
	}
	if n := carried.Load(); n > 0 {
		t.Errorf("%d questions followed a redirect", n)
	}
}
