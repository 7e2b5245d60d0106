package engines

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/internal/engines/emulated"
	"assay/internal/supervise"
)

// The test binary is also the supervisor, the emulated engine, and the services
// that misbehave.
func TestMain(m *testing.M) {
	args := os.Args[1:]
	switch {
	case supervise.IsWorker(args):
		syscall.Exit(supervise.Main())
	case len(args) > 0 && args[0] == "emulate":
		syscall.Exit(emulate(args[1:]))
	case len(args) > 0 && args[0] == "role":
		syscall.Exit(play(args[1], args[2:]))
	}
	os.Exit(m.Run())
}

func emulate(args []string) int {
	set := flag.NewFlagSet("emulate", flag.ContinueOnError)
	config, listen, emissions := set.String("config", "", ""), set.String("listen", "", ""), set.String("emission-log", "", "")
	if set.Parse(args) != nil {
		return 2
	}
	b, err := os.ReadFile(*config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	c, err := emulated.ParseConfig(b)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := emulated.Serve(ctx, c, emulated.Options{Listen: *listen, EmissionLog: *emissions, Log: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const models = `{"object":"list","data":[{"id":"b"},{"id":"a"},{"id":"b"}]}`

func play(role string, args []string) int {
	switch role {
	case "die": // at once
		fmt.Println("loading weights")
		fmt.Fprintln(os.Stderr, "no GPU, key is", os.Getenv("API_KEY"))
		return 3
	case "busy": // meets an occupied port once
		if _, err := os.Stat(args[1]); errors.Is(err, fs.ErrNotExist) {
			os.WriteFile(args[1], nil, 0o600)
			fmt.Println("[Errno 98] error while attempting to bind: address already in use")
			return 1
		}
	case "mute": // accepts and never answers
		ln, err := net.Listen("tcp", "127.0.0.1:"+args[0])
		if err != nil {
			return 1
		}
		defer ln.Close()
		time.Sleep(time.Hour)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/models", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, models) })
	mux.HandleFunc("/env", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, strings.Join(os.Environ(), "\n"))
	})
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) {
		fmt.Println("out of memory")
		syscall.Exit(9)
	})
	ln, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Print("INFO: startup complete, key ", os.Getenv("API_KEY"), "\n")
	http.Serve(ln, mux)
	return 1
}

func command(role string, args ...string) []any {
	exe, _ := os.Executable()
	out := []any{exe, "role", role, "{port}"}
	for _, a := range args {
		out = append(out, a)
	}
	return out
}

func launch(t *testing.T, engine string, config map[string]any) Launch {
	t.Helper()
	return Launch{Service: "s", Unit: "u1", Engine: engine, Config: config, LogDir: t.TempDir()}
}

func start(t *testing.T, l Launch) *Instance {
	t.Helper()
	i, err := Start(context.Background(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // kills what is still there
		i.Stop(ctx)
	})
	return i
}

func startFails(t *testing.T, l Launch, want ...string) error {
	t.Helper()
	i, err := Start(context.Background(), l)
	if err == nil {
		i.Stop(context.Background())
		t.Fatalf("started; want an error with %q", want)
	}
	for _, w := range append(want, "service s (u1)") {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("no %q in: %v", w, err)
		}
	}
	return err
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

func logOf(t *testing.T, l Launch) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(l.LogDir, ServiceLog))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func emulatedConfig() map[string]any {
	return map[string]any{
		"engine": "emulated", "restart": "trial", "stop_grace": "5s", "seed": 3.0,
		"models": []any{map[string]any{"name": "z", "prefill_base": "1ms", "decode_per_token": "0s"}, map[string]any{"name": "a"}},
	}
}

func TestEmulated(t *testing.T) {
	l := launch(t, Emulated, emulatedConfig())
	i := start(t, l)
	if !i.Emulated || !slices.Equal(i.Models, []string{"a", "z"}) || i.Dead() != "" || !strings.HasPrefix(i.URL, "http://127.0.0.1:") {
		t.Errorf("%+v, dead %q", i, i.Dead())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Post(i.URL+"/v1/completions", "application/json", strings.NewReader(`{"model":"z","prompt":"p","max_tokens":3,"request_id":"r9"}`))
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if r := i.Stop(context.Background()); r != (StopReport{}) {
		t.Errorf("stop: %+v", r)
	}
	if !strings.Contains(i.Dead(), "was stopped") {
		t.Errorf("dead: %q", i.Dead())
	}
	emissions, err := os.ReadFile(filepath.Join(l.LogDir, EmissionLog))
	if err != nil || !strings.Contains(string(emissions), `"request_id":"r9"`) {
		t.Errorf("emission log: %v\n%s", err, emissions)
	}
	if log := logOf(t, l); !strings.Contains(log, "assay-emulated listening on "+i.URL) {
		t.Errorf("log: %s", log)
	}
	// What it served from is on record, and is a configuration again.
	b, err := os.ReadFile(filepath.Join(l.LogDir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := emulated.ParseConfig(b); err != nil || c.Seed != 3 || c.Models[1].MaxModelLen != 32768 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestEmulatedBadConfig(t *testing.T) {
	c := emulatedConfig()
	c["models"] = []any{map[string]any{"name": "a", "prefil_base": "1ms"}}
	startFails(t, launch(t, Emulated, c), "models[0].prefil_base")
}

func TestEmulatedDies(t *testing.T) {
	c := emulatedConfig()
	c["fault"] = map[string]any{"kind": "die", "after_tokens": 0.0}
	i := start(t, launch(t, Emulated, c))
	get(t, i.URL+"/health")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	if _, err := client.Post(i.URL+"/v1/completions", "application/json", strings.NewReader(`{"model":"z","prompt":"p"}`)); err == nil {
		t.Error("it answered")
	}
	<-i.Done()
	if !strings.Contains(i.Dead(), "signal 9") {
		t.Errorf("dead: %q", i.Dead())
	}
}

func TestCommand(t *testing.T) {
	t.Setenv("NOT_ALLOWED", "leak")
	t.Setenv("ASCEND_HOME", "/ascend")
	l := launch(t, Aegaeon, map[string]any{"command": command("serve"), "env": map[string]any{"API_KEY": "k-123456", "MODE": "a"}})
	l.Env = []string{"MODE=b"}
	l.Secrets = []string{"k-123456"}
	i := start(t, l)
	if i.Emulated || !slices.Equal(i.Models, []string{"a", "b"}) {
		t.Errorf("%+v", i)
	}
	env := get(t, i.URL+"/env")
	port := i.URL[strings.LastIndex(i.URL, ":")+1:]
	for _, want := range []string{"API_KEY=k-123456\n", "MODE=b\n", "ASCEND_HOME=/ascend\n", "ASSAY_PORT=" + port + "\n"} {
		if !strings.Contains(env, want) {
			t.Errorf("no %q in %s", want, env)
		}
	}
	if strings.Contains(env, "NOT_ALLOWED") {
		t.Error("the environment leaks")
	}
	if r := i.Stop(context.Background()); r.ExitCode != -1 || r.Killed || r.Err != nil {
		t.Errorf("stop: %+v", r)
	}
	if log := logOf(t, l); !strings.Contains(log, "key [secret]\n") || strings.Contains(log, "k-123456") {
		t.Errorf("log: %s", log)
	}
}

func TestDeathBeforeReady(t *testing.T) {
	l := launch(t, OpenAI, map[string]any{"command": command("die"), "env": map[string]any{"API_KEY": "k-123456"}})
	l.Secrets = []string{"k-123456"}
	begun := time.Now()
	err := startFails(t, l, "exit code 3", "loading weights", "no GPU")
	if strings.Contains(err.Error(), "k-123456") {
		t.Errorf("a secret is in the error: %v", err)
	}
	if time.Since(begun) > time.Minute { // ready_timeout is ten
		t.Error("death was not noticed")
	}
}

func TestDeathWhileServing(t *testing.T) {
	i := start(t, launch(t, OpenAI, map[string]any{"command": command("serve")}))
	get(t, i.URL+"/exit")
	<-i.Done()
	if d := i.Dead(); !strings.Contains(d, "exit code 9") || !strings.Contains(d, "out of memory") {
		t.Errorf("dead: %q", d)
	}
	if r := i.Stop(context.Background()); r.ExitCode != 9 {
		t.Errorf("stop: %+v", r)
	}
}

func TestReadyTimeout(t *testing.T) {
	t.Parallel()
	startFails(t, launch(t, OpenAI, map[string]any{"command": command("mute"), "ready_timeout": "200ms"}), "not ready in time", "200ms", "/v1/models")
	startFails(t, launch(t, OpenAI, map[string]any{"command": command("serve"), "ready_path": "/nothing", "ready_timeout": "2s"}), "status 404", "startup complete")
	startFails(t, launch(t, OpenAI, map[string]any{"command": command("serve"), "ready_log": "never", "ready_timeout": "300ms"}), `"never"`)
}

func TestReadyLog(t *testing.T) {
	i := start(t, launch(t, OpenAI, map[string]any{"command": command("serve"), "ready_log": `^INFO: startup complete`, "stop_signal": "INT"}))
	if len(i.Models) != 2 {
		t.Errorf("%+v", i)
	}
	if r := i.Stop(context.Background()); r.Killed {
		t.Errorf("%+v", r)
	}
}

func TestStartIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	time.AfterFunc(100*time.Millisecond, func() { cancel(reason) })
	_, err := Start(ctx, launch(t, OpenAI, map[string]any{"command": command("mute")}))
	if !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
}

func TestStopKillsAfterGrace(t *testing.T) {
	i := start(t, launch(t, OpenAI, map[string]any{"command": command("stubborn"), "stop_grace": "100ms"}))
	if r := i.Stop(context.Background()); !r.Killed || r.ExitCode != -1 {
		t.Errorf("%+v", r)
	}
	i = start(t, launch(t, OpenAI, map[string]any{"command": command("stubborn")}))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if r := i.Stop(ctx); !r.Killed {
		t.Errorf("%+v", r)
	}
}

func TestTakenPort(t *testing.T) {
	l := launch(t, OpenAI, map[string]any{"command": command("busy", filepath.Join(t.TempDir(), "met"))})
	start(t, l)
	if log := logOf(t, l); !strings.Contains(log, "Errno 98") || !strings.Contains(log, "startup complete") {
		t.Errorf("log: %s", log)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	startFails(t, launch(t, OpenAI, map[string]any{"command": command("serve"), "port": float64(port)}), "port "+strconv.Itoa(port)+" is not free")
}

func TestPortsOfOneProcessDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		p, err := choosePort(0)
		if err != nil || seen[p] {
			t.Fatalf("port %d, %v", p, err)
		}
		seen[p] = true
		defer releasePort(p)
	}
}

func TestAttach(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, models) }))
	defer srv.Close()
	i := start(t, launch(t, OpenAI, map[string]any{"url": srv.URL + "/"}))
	if i.Emulated || i.URL != srv.URL || len(i.Models) != 2 || i.Pid() != 0 || i.Dead() != "" {
		t.Errorf("%+v", i)
	}
	if r := i.Stop(context.Background()); !r.Attached {
		t.Errorf("%+v", r)
	}
	i.Stop(context.Background()) // a second time does no harm
	<-i.Done()
	if i.Dead() == "" {
		t.Error("it is not known to be detached")
	}

	ours := start(t, launch(t, Emulated, emulatedConfig()))
	if i := start(t, launch(t, OpenAI, map[string]any{"url": ours.URL})); !i.Emulated {
		t.Error("an emulated service passes for a real one")
	}
}

func TestAttachFails(t *testing.T) {
	t.Parallel()
	status := func(code int, body string) string {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				return
			}
			w.WriteHeader(code)
			io.WriteString(w, body)
		}))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	for _, c := range []struct {
		engine string
		config map[string]any
		want   string
	}{
		{OpenAI, map[string]any{"url": "http://127.0.0.1:1", "ready_timeout": "100ms"}, "refused"},
		{OpenAI, map[string]any{"url": status(500, ""), "ready_timeout": "100ms"}, "status 500"},
		{OpenAI, map[string]any{"url": status(200, "<html>")}, "not a list of models"},
		{OpenAI, map[string]any{"url": status(200, strings.Repeat(" ", probeBytes+1))}, "larger"},
		{OpenAI, map[string]any{"url": status(302, ""), "ready_timeout": "100ms"}, "status 302"},
		{OpenAI, map[string]any{"url": "ftp://h"}, "want http://"},
		{OpenAI, map[string]any{"url": "http://u:p@h"}, "without user"},
		{OpenAI, map[string]any{"url": "http://h", "ready_log": "x"}, "ready_log"},
		{OpenAI, map[string]any{}, "neither command nor url"},
		{OpenAI, map[string]any{"command": []any{"x"}, "url": "http://h"}, "give one"},
		{OpenAI, map[string]any{"command": []any{"/no/such/program"}}, "/no/such/program"},
		{OpenAI, map[string]any{"command": []any{"x"}, "ready_log": "("}, "ready_log"},
		{OpenAI, map[string]any{"command": []any{"x"}, "ready_path": "health"}, "begin with /"},
		{"vllm", map[string]any{}, "engine"},
	} {
		startFails(t, launch(t, c.engine, c.config), c.want)
	}
	if i := start(t, launch(t, PyPTO, map[string]any{"url": status(404, "")})); len(i.Models) != 0 {
		t.Errorf("%+v", i)
	}
}
