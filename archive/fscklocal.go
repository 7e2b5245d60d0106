package archive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// The checks of what is not in blobs: the record index, and what processes leave.

const fixable = "`assay fsck --repair`"

// checkRecords compares the record index with the records among the blobs. A record
// is stored before its line is and collected before it: what others are at does not
// count.
func (f *fsck) checkRecords() error {
	found, err := f.s.findRecords(f.ctx)
	if err != nil {
		return err
	}
	f.report.Records = len(found)
	if f.odd[recordIndexName] {
		f.records = true
		return nil // told already
	}
	lines, err := f.s.readRecordIndex()
	if err != nil {
		return err
	}
	listed := map[schemas.Digest]recordLine{}
	for _, l := range lines {
		listed[l.Digest] = l
	}
	unlisted, wrong := 0, 0
	for _, r := range found {
		l, ok := listed[r.Digest]
		switch {
		case !ok && !f.beingWritten(r.Digest):
			unlisted++
		case !ok:
		case l != lineOf(r.Digest, r.Record):
			wrong++
		}
		delete(listed, r.Digest)
	}
	gone := 0
	for d := range listed {
		if f.bad[d] == nil && !f.s.mayBeRecord(d) {
			gone++
		}
	}
	if gone > 0 && f.collecting() {
		gone = 0
	}
	torn, err := f.tornLines()
	if err != nil {
		return err
	}
	if unlisted+wrong+gone+torn == 0 {
		return nil
	}
	f.records = true
	f.add(schemas.Finding{ID: "fsck.records", Severity: schemas.SeverityWarning, Subject: "record index", File: recordIndexName,
		Message: fmt.Sprintf("%d records are not in it, %d lines name records that are not there, %d say something else, %d cannot be read", unlisted, gone, wrong, torn),
		Remedy:  fixable + " makes it anew from the records: until then some results are not reused"})
	return nil
}

// beingWritten says that a blob is of a run that is being written now.
func (f *fsck) beingWritten(d schemas.Digest) bool {
	info, err := os.Lstat(f.s.blobPath(d))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // collected meanwhile
	}
	leases, err := f.s.Leases()
	for _, l := range leases {
		if err == nil && l.State != LeaseDead && info.ModTime().After(l.Started.Add(-leaseMargin)) {
			return true
		}
	}
	return false
}

// collecting says that gc is at work; it makes nothing, since the store may only be
// there to be read.
func (f *fsck) collecting() bool {
	if _, err := os.Lstat(f.s.path(gcLockName)); err != nil || f.opts.Repair {
		return false // a repair holds it
	}
	unlock, free, err := durable.TryLock(f.s.path(gcLockName))
	if err == nil && free {
		_ = unlock()
	}
	return err == nil && !free
}

// tornLines counts the lines of the record index that are no JSON.
func (f *fsck) tornLines() (int, error) {
	b, err := readPlain(f.s.path(recordIndexName))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	n := 0
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\n"))
		if line = bytes.TrimSpace(line); len(line) > 0 && !json.Valid(line) {
			n++
		}
		b = rest
	}
	return n, err
}

// checkJournals reads every journal and looks for what it names.
func (f *fsck) checkJournals() error {
	entries, err := os.ReadDir(f.s.JournalDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sealed := map[string]bool{}
	for _, r := range f.runs {
		sealed[r.ID] = true
	}
	for _, e := range entries {
		run, ok := strings.CutSuffix(e.Name(), journalSuffix)
		if !ok || durable.IsTemp(e.Name()) || f.odd["assay/journals/"+e.Name()] {
			continue
		}
		path := filepath.Join(f.s.JournalDir(), e.Name())
		b, err := readPlain(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		x := schemas.Finding{ID: "fsck.journal", Subject: "run " + run, File: f.rel(path)}
		lines, err := durable.SummedLines(b, goesOn)
		switch {
		case sealed[run]:
			x.Severity, x.Message, x.Remedy = schemas.SeverityInfo, "the run is sealed, its journal is still there", "the next run removes it"
		case err != nil:
			f.journals = append(f.journals, path)
			var line *durable.LineError
			if errors.As(err, &line) {
				x.Line = line.Line
			}
			x.Severity, x.Message = schemas.SeverityError, err.Error()+": the run cannot be resumed"
			x.Remedy = fixable + " moves it to assay/quarantine, which gives the run up"
		case len(lines) == 0 && f.held(path):
			continue // its first line is about to be written
		case len(lines) == 0:
			f.journals = append(f.journals, path)
			x.Severity, x.Message = schemas.SeverityWarning, "it has no whole line: its run died before it began, or the journal was emptied"
			x.Remedy = fixable + " moves it to assay/quarantine, which gives the run up"
		default:
			f.checkNamed(b, x)
			continue
		}
		f.add(x)
	}
	return nil
}

// goesOn says that a line of a journal is the one with which a run goes on.
func goesOn(line []byte) bool {
	var ev struct {
		Start *struct{} `json:"start"`
	}
	return json.Unmarshal(line, &ev) == nil && ev.Start != nil
}

// held says that a living process has locked a journal. It makes nothing.
func (f *fsck) held(journal string) bool {
	if _, err := os.Lstat(journal + ".lock"); err != nil {
		return false
	}
	unlock, free, err := durable.TryLock(journal + ".lock")
	if err == nil && free {
		_ = unlock()
	}
	return err == nil && !free
}

// checkNamed looks for records and trees that a journal names.
func (f *fsck) checkNamed(journal []byte, x schemas.Finding) {
	for _, line := range bytes.Split(journal, []byte("\n")) {
		var ev struct {
			Record  *schemas.RunRecord     `json:"record"`
			Service *schemas.ServiceRecord `json:"service"`
		}
		if json.Unmarshal(line, &ev) != nil {
			continue
		}
		var named []schemas.Digest
		if ev.Record != nil {
			named = append(named, ev.Record.Digest, ev.Record.Record.Tree)
		}
		if ev.Service != nil {
			named = append(named, ev.Service.Tree)
		}
		for _, d := range named {
			if _, there := f.sizes[d]; d == "" || there {
				continue
			}
			if _, err := f.s.blobSize(d); err == nil {
				continue // written since
			}
			if _, err := os.Lstat(f.s.path(x.File)); errors.Is(err, fs.ErrNotExist) {
				return // its run was sealed meanwhile, and perhaps removed
			}
			x.Severity, x.Blob, x.Message = schemas.SeverityError, d, "the journal names a blob that is not there: resuming the run will fail"
			x.Remedy = "restore the blob from a copy of the store, or move the journal away to give the run up"
			f.add(x)
		}
	}
}

func (f *fsck) checkLeases() error {
	list, err := f.s.Leases()
	if err != nil {
		return err
	}
	for _, l := range list {
		x := schemas.Finding{ID: "fsck.lease", Severity: schemas.SeverityInfo, Subject: "run " + l.Run, File: f.rel(l.File)}
		switch l.State {
		case LeaseDead:
			f.remove = append(f.remove, l.File)
			x.Message, x.Remedy = fmt.Sprintf("process %d on %s left its lease behind when it died", l.PID, l.Host), "the next run, or "+fixable+", removes it"
		case LeaseUnknown:
			x.Severity = schemas.SeverityWarning
			x.Message = fmt.Sprintf("process %d on %s has held a lease since %s; from here nobody can tell whether it is alive, so it counts", l.PID, l.Host, l.Started.Format(time.RFC3339))
			x.Remedy = "if that machine or container is gone for good, remove the file: until then gc keeps everything that is newer"
		default:
			continue
		}
		f.add(x)
	}
	return nil
}

// tempDirs is where temporary files may lie.
var tempDirs = []string{"", "assay", "assay/records", "assay/work", "assay/journals", leaseDir, cacheDir, quarantineDir, blobsDir}

func (f *fsck) checkTemps() error {
	for _, dir := range tempDirs {
		entries, err := os.ReadDir(f.s.path(dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			token, ok := durable.TempHolder(e.Name())
			if !ok || durable.SameNamespace(token) && !durable.Dead(token) {
				continue
			}
			path := filepath.Join(f.s.path(dir), e.Name())
			x := schemas.Finding{ID: "fsck.temp", Severity: schemas.SeverityInfo, Subject: "temporary file", File: f.rel(path), Message: "its writer is dead", Remedy: fixable + " removes it"}
			if durable.Dead(token) {
				f.remove = append(f.remove, path)
			} else {
				x.Severity, x.Message, x.Remedy = schemas.SeverityWarning, "it belongs to a process of another machine or container, which may be alive", "remove it if that one is gone for good"
			}
			f.add(x)
		}
	}
	return nil
}

// runFolder is how the private folder of a run is named; others hold other things.
var runFolder = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}$`)

// checkWork looks for private folders of executions that nobody goes on with.
func (f *fsck) checkWork() error {
	entries, err := os.ReadDir(f.s.WorkDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	leases, err := f.s.Leases()
	if err != nil {
		return err
	}
	active := map[string]bool{}
	for _, l := range leases {
		active[l.Run] = active[l.Run] || l.State != LeaseDead
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !runFolder.MatchString(e.Name()) || active[e.Name()] || time.Since(info.ModTime()) < DefaultGrace {
			continue
		}
		if _, err := os.Lstat(filepath.Join(f.s.JournalDir(), e.Name()+journalSuffix)); err == nil {
			continue // it can be resumed
		}
		path := filepath.Join(f.s.WorkDir(), e.Name())
		f.remove = append(f.remove, path)
		f.add(schemas.Finding{ID: "fsck.work", Severity: schemas.SeverityInfo, Subject: "work folder", File: f.rel(path), Message: "no journal and no lease belongs to it", Remedy: fixable + " removes it"})
	}
	return nil
}

func (f *fsck) checkQuarantine() error {
	entries, err := os.ReadDir(f.s.path(quarantineDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n := 0
	for _, e := range entries {
		if !durable.IsTemp(e.Name()) {
			n++
		}
	}
	if n > 0 {
		f.add(schemas.Finding{ID: "fsck.quarantine", Severity: schemas.SeverityInfo, Subject: quarantineDir, File: quarantineDir,
			Message: fmt.Sprintf("%d files were taken out of the way by earlier repairs", n), Remedy: "look at them, then move them away yourself: assay never deletes them"})
	}
	return nil
}
