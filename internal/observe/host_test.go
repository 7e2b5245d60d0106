package observe

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"assay/internal/supervise"
	"assay/schemas"
)

func TestMain(m *testing.M) {
	if supervise.IsWorker(os.Args[1:]) {
		syscall.Exit(supervise.Main())
	}
	os.Exit(m.Run())
}

func TestParseProc(t *testing.T) {
	s, err := ParseStat([]byte("4321 (a) (b) S) S 1 4321 4321 0 -1 4194304 1 2 3 4 150 50 20 5 20 0 7 0 98765 1000 250 18446744073709551615 1 1 0\n"))
	if err != nil || s != (ProcStat{PID: 4321, PPID: 1, State: 'S', CPUS: 2, ChildrenS: 0.25, Threads: 7, StartTicks: 98765, RSSPages: 250}) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, bad := range []string{"", "1 (a", ") (", "x (a) S 1", "1 (a) S 1 2 3", "1 (a) S one 2 3 4 5 6 7 8 9 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if s, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("%q was taken: %+v", bad, s)
		}
	}
	st, err := ParseStatus([]byte("Name:\tx\nVmHWM:\t    2928 kB\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"))
	if err != nil || st != (ProcStatus{2928 << 10, 12, 3}) {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := ParseStatus([]byte("VmHWM: many kB\n")); err == nil {
		t.Error("a size that is none was taken")
	}
	h, err := ParseHost([]byte("cpu  100 10 50 1000 30 5 5 20 0 0\ncpu0 1 1 1 1 1 1 1 1\nctxt 777\n"), []byte("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\n"),
		[]byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=9\n"))
	if err != nil || h != (HostStat{BusyS: 1.7, WaitS: 0.3, StealS: 0.2, Switches: 777, MemoryUsedBytes: 400 << 10, PressureS: 2.5}) {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err := ParseHost([]byte("cpu 1 2 3 4 5 6 7 8\nctxt 1\n"), []byte("MemTotal: 2 kB\nMemAvailable: 1 kB\n"), nil); err != nil || h.PressureS != -1 {
		t.Errorf("%+v, %v", h, err)
	}
	for _, bad := range [][2]string{{"", ""}, {"cpu 1 2 3\nctxt 1\n", "MemTotal: 2 kB\nMemAvailable: 1 kB\n"}, {"cpu 1 2 3 4 5 6 7 x\nctxt 1\n", "MemTotal: 2 kB\nMemAvailable: 1 kB\n"}, {"cpu 1 2 3 4 5 6 7 8\nctxt 1\n", "MemTotal: 2 kB\n"}} {
		if h, err := ParseHost([]byte(bad[0]), []byte(bad[1]), nil); err == nil {
			t.Errorf("%q was taken: %+v", bad, h)
		}
	}
}

func FuzzParseProc(f *testing.F) {
	f.Add([]byte("4321 (a) (b) S) S 1 4321 4321 0 -1 4194304 1 2 3 4 150 50 20 5 20 0 7 0 98765 1000 250 1\n"))
	f.Add([]byte("cpu  100 10 50 1000 30 5 5 20 0 0\nctxt 777\nMemTotal: 1 kB\nVmHWM:\t2 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseStat(b); err == nil && s.State == 0 {
			t.Errorf("%+v", s)
		}
		if s, err := ParseStatus(b); err == nil && s.Voluntary < 0 {
			t.Errorf("%+v", s)
		}
		_, _ = ParseHost(b, b, b)
	})
}

// TestAProcessTree watches a shell that burns a processor in a child, and again in
// one that ends and is waited for.
func TestAProcessTree(t *testing.T) {
	burn := `i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done`
	cmd := exec.Command("/bin/sh", "-c", `echo up; read go; (`+burn+`); (`+burn+`; sleep 60) & echo burnt; wait`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tr, err := newTree(cmd.Process.Pid)
		if err == nil {
			tr.find()
			for _, pid := range tr.pids {
				if p, err := os.FindProcess(pid); err == nil {
					p.Kill()
				}
			}
		}
		cmd.Wait()
	})
	await := func() {
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	await()
	cfg := quiet()
	cfg.Host = schemas.ObserveAuto
	opts := Options{Config: cfg, URL: "http://127.0.0.1:1", PID: cmd.Process.Pid, Dir: t.TempDir()}
	r, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	r.Begin(time.Now())
	io.WriteString(in, "go\n")
	io.ReadFull(out, make([]byte, len("p\nburnt\n")))
	until(t, hasLines(opts.Dir, HostFile, 8))()
	seen, findings, err := r.End(t.Context())
	if err != nil || len(findings) != 0 {
		t.Fatalf("%v, %v", err, findings)
	}
	cpu, procs := find(seen.Series, "service_cpu_s"), find(seen.Series, "service_processes")
	if cpu.Delta == nil || *cpu.Delta < 0.1 || *cpu.Delta > 20 {
		t.Errorf("processor time %+v", cpu)
	}
	if procs.First == nil || *procs.First != 1 || procs.Last == nil || *procs.Last < 2 {
		t.Errorf("processes %+v", procs)
	}
	if rss := find(seen.Series, "service_rss_bytes"); rss.Min == nil || *rss.Min < 1<<16 {
		t.Errorf("memory %+v", rss)
	}
	if sw := find(seen.Series, "service_voluntary_switches"); sw.Delta == nil || *sw.Delta < 1 {
		t.Errorf("switches %+v", sw)
	}
	if host := find(seen.Series, "host_cpu_s"); host.Delta == nil || *host.Delta < *cpu.Delta*0.5 {
		t.Errorf("host %+v", host)
	}
	if seen.CPUCores == nil || *seen.CPUCores > 0.5 {
		t.Errorf("observing cost %v processors", seen.CPUCores)
	}
	if rows := lines(t, opts.Dir, HostFile); len(rows) < 5 || rows[1]["service"] == nil || rows[1]["host"] == nil {
		t.Errorf("rows %v", rows)
	}
}

// TestNothingGetsAwayFromASupervisor: what a service leaves to the system comes to
// the supervisor, and is seen there; the supervisor itself is not the service.
func TestNothingGetsAwayFromASupervisor(t *testing.T) {
	p, err := supervise.Start(t.Context(), supervise.Spec{Argv: []string{"/bin/sh", "-c", "(sleep 60 &); sleep 60; :"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Done() })
	tr, err := newTree(p.Pid())
	if err != nil {
		t.Fatal(err)
	}
	if !tr.spare || tr.root == p.Pid() {
		t.Fatalf("the tree begins at %d, spare %v", tr.root, tr.spare)
	}
	var sum treeSum
	until(t, func() bool { // the shell and two that sleep, one of them an orphan
		var err error
		sum, err = tr.look(true)
		orphans := 0
		for _, pid := range tr.pids {
			if st, err := readStat(pid); err == nil && st.PPID == tr.root && pid != p.Pid() {
				orphans++
			}
		}
		return err == nil && sum.Processes == 3 && orphans == 1
	})()
	if sum.Threads != 3 || sum.RSSBytes <= 0 || sum.HighWaterBytes < sum.RSSBytes/2 {
		t.Errorf("%+v", sum)
	}
}

func TestProcessesThatEndOrAreNotKnown(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "read go")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cfg := quiet()
	cfg.Host = schemas.ObserveAuto
	dir := t.TempDir()
	r, err := Start(t.Context(), Options{Config: cfg, URL: "http://127.0.0.1:1", PID: cmd.Process.Pid, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	r.Begin(time.Now())
	in.Close()
	cmd.Wait()
	until(t, hasLines(dir, HostFile, 4))()
	seen, _, err := r.End(t.Context())
	if s := find(seen.Series, "service_cpu_s"); s.Delta != nil || s.Unknown == "" {
		t.Errorf("time of processes that ended: %+v", s)
	}
	if st := sourceOf(t, seen, "host"); err != nil || st.Errors != 1 || !strings.Contains(st.LastError, "have ended") {
		t.Errorf("%v, %+v", err, st)
	}
	// Attached: no process, but the host if that is asked for.
	cfg.Host = schemas.ObserveOn
	dir = t.TempDir()
	seen, _, err = observe(t, Options{Config: cfg, URL: "http://127.0.0.1:1", Dir: dir}, until(t, hasLines(dir, HostFile, 4)))
	if s := find(seen.Series, "service_cpu_s"); err != nil || !strings.Contains(s.Unknown, "attached") || find(seen.Series, "host_cpu_cores").Mean == nil {
		t.Errorf("%v, %+v", err, seen.Series)
	}
	cfg.Host = schemas.ObserveAuto
	seen, _, err = observe(t, Options{Config: cfg, URL: "http://127.0.0.1:1"}, nothing)
	if st := sourceOf(t, seen, "host"); err != nil || st.Status != schemas.ObservedOff || len(seen.Series) != 0 {
		t.Errorf("%v, %+v", err, st)
	}
}
