package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// registry VAR starts docker-registry for the script and sets VAR to its host
// and port, and REG_DATA to the folder in which it keeps its blobs.
func startRegistry(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: registry VAR")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	host := l.Addr().String()
	ts.Check(l.Close())
	data := ts.MkAbs(".registry")
	ts.Check(os.MkdirAll(data, 0o755))
	config := filepath.Join(data, "config.yml")
	ts.Check(os.WriteFile(config, []byte(fmt.Sprintf("version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: %s\nhttp:\n  addr: %s\n", data, host)), 0o600))
	cmd := exec.Command("docker-registry", "serve", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	wait(ts, func() bool {
		conn, err := net.Dial("tcp", host)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, "docker-registry on %s", host)
	ts.Setenv(args[0], host)
	ts.Setenv("REG_DATA", data)
}
