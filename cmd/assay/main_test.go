package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"assay/internal/supervise"
)

// The test binary is assay too: when it is called by that name, by a script or
// as the supervisor and the emulated engine of a run, it does what assay does.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"assay": func() {
		code := run()
		if supervise.IsWorker(os.Args[1:]) {
			syscall.Exit(code) // os.Exit waits a second under the race detector
		}
		os.Exit(code)
	}})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "json": checkJSON, "jsonenv": jsonEnv, "damage": damage, "waitline": waitLine, "waitgone": waitGone,
			"registry": startRegistry,
		},
	})
}

// setup gives each script a home of its own, and the small experiment that most
// of them run.
func setup(env *testscript.Env) error {
	home := filepath.Join(env.WorkDir, ".home")
	env.Setenv("HOME", home)
	env.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	env.Setenv("GORACE", "atexit_sleep_ms=0")
	tiny, err := os.ReadFile("testdata/tiny.toml")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(env.WorkDir, "tiny.toml"), tiny, 0o644)
}
