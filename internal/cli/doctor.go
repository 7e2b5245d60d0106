package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/shirou/gopsutil/v4/disk"
	"golang.org/x/sys/unix"

	"assay/archive"
	"assay/internal/durable"
	"assay/internal/statcache"
	"assay/schemas"
)

// The least that a run with many connections gets by with.
const (
	wantOpenFiles = 8192
	wantFreeBytes = 1 << 30
)

func doctorCommand() *command {
	return &command{
		name: "doctor", summary: "look at this machine and the store, and say what is wrong",
		details: "Looks at the host, the store, interrupted runs, limits, accelerator tools, and\nwhether locks and renames work where the store lies. Exit code 7 on an error.\nWith --facts it checks nothing and records what `assay preflight --facts` judges\nanywhere else: devices, packages, limits; no secret, and no weights.",
		example: "assay doctor --facts host.json",
		flags:   recordFlags(),
		run:     runDoctor,
	}
}

// diagnosis gathers findings.
type diagnosis struct {
	c    *call
	list []schemas.Finding
}

func (d *diagnosis) add(id string, s schemas.Severity, subject, remedy, format string, args ...any) {
	d.list = append(d.list, schemas.Finding{ID: "doctor." + id, Severity: s, Subject: subject, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func runDoctor(c *call) error {
	switch {
	case c.IsSet("facts"):
		return recordFacts(c)
	case c.IsSet("machine"), c.IsSet("force"):
		return usagef("--machine and --force go with --facts")
	}
	d := &diagnosis{c: c}
	dir, err := filepath.Abs(c.storeDir())
	if err != nil {
		return err
	}
	d.host()
	d.limits()
	d.store(dir)
	d.fileSystem(nearestFolder(dir))
	code := ExitOK
	for _, f := range d.list {
		if f.Severity == schemas.SeverityError {
			code = ExitInfra
		}
	}
	if c.asJSON {
		if err := c.printJSON(schemas.Findings{Schema: schemas.FindingsV1, Findings: d.list}); err != nil {
			return err
		}
		return exitWith(code)
	}
	c.printf("%s\n%s", countSeverities(d.list), findingsText(d.list))
	return exitWith(code)
}

func (d *diagnosis) host() {
	env := environment(d.c.ctx, nil)
	d.add("host", schemas.SeverityInfo, "host", "", "%s, %s %s %s, %d CPUs (%s), %s of memory", env.Host, env.OS, env.Kernel, env.Arch, env.CPUs, env.CPUModel, schemas.Size(env.MemoryBytes))
	d.add("tool", schemas.SeverityInfo, "assay", "", "version %s, revision %s, %s", env.Tool.Version, env.Tool.Revision, env.Tool.Go)
	if runtime.GOOS != "linux" {
		d.add("os", schemas.SeverityWarning, "host", "measure on Linux", "on %s child processes cannot be supervised through a kill of assay itself", runtime.GOOS)
	}
	if env.AcceleratorsUnknown != "" {
		d.add("accelerators", schemas.SeverityInfo, "accelerators", "", "none can be listed: %s", env.AcceleratorsUnknown)
	}
	for _, a := range env.Accelerators {
		d.add("accelerators", schemas.SeverityInfo, "accelerators", "", "%d: %s %s %s", a.Index, a.Name, a.Memory, a.Driver)
	}
}

func (d *diagnosis) limits() {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		d.add("open-files", schemas.SeverityUnknown, "open files", "", "the limit cannot be read: %v", err)
		return
	}
	if files.Max < wantOpenFiles {
		d.add("open-files", schemas.SeverityWarning, "open files", "raise the hard limit: ulimit -Hn", "at most %d files and connections can be open: a run with more requests in flight gives client_resource", files.Max)
		return
	}
	d.add("open-files", schemas.SeverityPass, "open files", "", "up to %d", files.Max)
}

func (d *diagnosis) store(dir string) {
	s, err := d.c.existing()
	switch {
	case err != nil:
		d.add("store", schemas.SeverityError, "store", "name another store with --store, or repair this one", "%v", err)
		return
	case s == nil:
		d.add("store", schemas.SeverityInfo, "store", "", "there is none at %s yet: the first run makes it", dir)
		return
	}
	runs, err := s.Runs(d.c.ctx)
	if err != nil {
		d.add("store", schemas.SeverityError, "store", "`assay fsck --repair` makes index.json anew", "%v", err)
		return
	}
	d.add("store", schemas.SeverityPass, "store", "", "%s holds %d runs (format %d)", s.Dir(), len(runs), archive.FormatVersion)
	open, damaged, err := interrupted(d.c.ctx, s)
	if err != nil {
		d.add("journals", schemas.SeverityError, "interrupted runs", "", "%v", err)
	}
	for _, w := range damaged {
		d.add("journals", schemas.SeverityWarning, "interrupted runs", "`assay fsck` says more", "%s", w)
	}
	for _, u := range open {
		if u.Running {
			d.add("running", schemas.SeverityInfo, "interrupted runs", "", "run %s of %s goes on in another process", u.RunID, u.Experiment)
			continue
		}
		d.add("interrupted", schemas.SeverityWarning, "interrupted runs", "`assay run FILE --resume="+u.RunID+"` goes on, `assay rm "+u.RunID+"` gives it up", "run %s of %s was interrupted", u.RunID, u.Experiment)
	}
}

// fileSystem tries what the store relies on in a folder of its own.
func (d *diagnosis) fileSystem(dir string) {
	if use, err := disk.UsageWithContext(d.c.ctx, dir); err != nil {
		d.add("disk", schemas.SeverityUnknown, "disk", "", "room at %s cannot be learnt: %v", dir, err)
	} else if use.Free < wantFreeBytes {
		d.add("disk", schemas.SeverityWarning, "disk", "make room, or name another store", "%s free at %s", schemas.Size(use.Free), dir)
	} else {
		d.add("disk", schemas.SeverityPass, "disk", "", "%s free at %s (%s)", schemas.Size(use.Free), dir, use.Fstype)
	}
	d.shared(statcache.DiskOf(dir))
	tmp, err := durable.TempDir(dir)
	if err != nil {
		d.add("write", schemas.SeverityError, "file system", "make the folder writable, or name another store", "%v", err)
		return
	}
	for _, probe := range []struct {
		id, what string
		try      func(dir string) error
	}{{"lock", "locks", probeLock}, {"rename", "atomic renames", probeRename}} {
		if err := probe.try(tmp); err != nil {
			d.add(probe.id, schemas.SeverityError, "file system", "put the store on a local file system", "%s do not work at %s: %v", probe.what, dir, err)
		} else {
			d.add(probe.id, schemas.SeverityPass, "file system", "", "%s work", probe.what)
		}
	}
	if err := durable.RemoveAll(tmp); err != nil {
		d.add("write", schemas.SeverityError, "file system", "", "%v", err)
	}
}

// shared says what the kind of file system means for a store.
func (d *diagnosis) shared(kind statcache.Disk, name string, err error) {
	const id, subject = "file-system", "file system"
	switch {
	case err != nil:
		d.add(id, schemas.SeverityUnknown, subject, "", "%v", err)
	case kind == statcache.Local:
		d.add(id, schemas.SeverityPass, subject, "", "%s is a local file system", name)
	case kind == statcache.Network:
		d.add(id, schemas.SeverityWarning, subject, "keep the store on a local disk and push or copy sealed runs; never write to one store from several hosts",
			"%s is shared with other hosts: reading and verifying is safe there, writing from one host at a time is as durable as its server, writing from several is not safe, and nothing is remembered of files on it", name)
	case kind == statcache.Memory:
		d.add(id, schemas.SeverityWarning, subject, "put a store that is to stay on a disk", "%s lies in memory: the store is gone with the next boot, and every file is read anew each time", name)
	default:
		d.add(id, schemas.SeverityInfo, subject, "", "%s is not known to assay: its locks and renames are tried, and every file is read anew each time; if other hosts can write to it, keep the store elsewhere", name)
	}
}

// probeLock takes a lock and checks that it keeps others out.
func probeLock(dir string) error {
	path := filepath.Join(dir, "lock")
	unlock, ok, err := durable.TryLock(path)
	if err != nil || !ok {
		return errors.Join(err, errors.New("a fresh lock cannot be taken"))
	}
	second, again, err := durable.TryLock(path)
	if err == nil && again {
		err = errors.Join(errors.New("a lock that is held was given out again"), second())
	}
	return errors.Join(err, unlock())
}

// probeRename replaces a file and reads it back.
func probeRename(dir string) error {
	path := filepath.Join(dir, "file")
	for _, content := range []string{"first", "second"} {
		if err := durable.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(b, []byte(content)) {
			return fmt.Errorf("%q was written, %q is there", content, b)
		}
	}
	return nil
}
