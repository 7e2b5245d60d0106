package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"assay/internal/durable"
	"assay/schemas"
)

// The journal of a run is one file of JSON lines with checksums, each made durable
// before the run goes on. A line cut short by a crash is the last one, or stands
// before the line with which the run went on, and is ignored. The
// process that writes a journal holds a kernel lock on it, which its death
// releases: no lock is ever left to remove by hand.

// journalEvent is one line.
type journalEvent struct {
	Event    string                 `json:"event"` // start, unit_start, record, unit_end, seal
	Time     time.Time              `json:"time"`
	Start    *journalStart          `json:"start,omitempty"`
	Unit     string                 `json:"unit,omitempty"`
	Attempt  int                    `json:"attempt,omitempty"`
	Record   *schemas.RunRecord     `json:"record,omitempty"`
	Service  *schemas.ServiceRecord `json:"service,omitempty"`
	Digest   schemas.Digest         `json:"digest,omitempty"`
	Findings []schemas.Finding      `json:"findings,omitempty"`
}

type journalStart struct {
	RunID      string         `json:"run_id"`
	Experiment string         `json:"experiment"`
	Digest     schemas.Digest `json:"experiment_digest"`
	StartedAt  time.Time      `json:"started_at"`
	PID        int            `json:"pid"`
	// Holder names the process for good: a copy of the store has this journal too,
	// but not its lock.
	Holder string `json:"holder"`
	// Token marks every process the run starts, so that survivors can be found.
	Token  string `json:"token"`
	Resume int    `json:"resume"`
}

type journal struct {
	path   string
	file   *durable.AppendFile
	unlock func() error
}

// journalDir is where the journals of a store lie.
func journalDir(storeDir string) string { return filepath.Join(storeDir, "assay", "journals") }

func openJournal(storeDir, runID string) (*journal, error) {
	dir := journalDir(storeDir)
	if err := durable.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("journal %s: %w", runID, err)
	}
	path := filepath.Join(dir, runID+".jsonl")
	unlock, ok, err := durable.TryLock(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", runID, err)
	}
	if !ok {
		return nil, &ResumeError{fmt.Sprintf("run %s is still being executed by another process", runID)}
	}
	var f *durable.AppendFile
	if err = durable.CheckPlain(path); err == nil {
		f, err = durable.OpenAppend(path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("journal %s: %w", runID, err), unlock())
	}
	return &journal{path: path, file: f, unlock: unlock}, nil
}

func (j *journal) write(ev journalEvent) error {
	b, err := json.Marshal(ev)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if err := j.file.AppendLine(durable.SumLine(b)); err != nil {
		return &InfraError{"write journal", err}
	}
	if err := j.file.Sync(); err != nil {
		return &InfraError{"write journal", err}
	}
	return nil
}

func (j *journal) close() error { return errors.Join(j.file.Close(), j.unlock()) }

// discard removes the journal of a sealed run: its manifest says everything now.
func (j *journal) discard() error {
	err := durable.Remove(j.path)
	lockErr := j.close()
	if rm := durable.Remove(j.path + ".lock"); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return errors.Join(err, lockErr)
}

func readJournal(path string) ([]journalEvent, error) {
	f, err := durable.OpenPlain(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	lines, err := durable.SummedLines(b, GoesOn)
	var events []journalEvent
	for i, line := range lines {
		var ev journalEvent
		if bad := json.Unmarshal(line, &ev); bad != nil && err == nil {
			err = fmt.Errorf("line %d: %w", i+1, bad)
		}
		events = append(events, ev)
	}
	switch {
	case err != nil:
	case len(events) == 0:
		err = errors.New("it has no whole line")
	case events[0].Start == nil:
		err = errors.New("it does not begin with the start of a run")
	}
	if err != nil {
		return nil, &DamagedError{File: path, Err: err}
	}
	return events, nil
}

// GoesOn says that a line of a journal is the one with which a run goes on.
func GoesOn(line []byte) bool {
	var ev struct {
		Start *struct{} `json:"start"`
	}
	return json.Unmarshal(line, &ev) == nil && ev.Start != nil
}

// DamagedError says that a journal cannot be read, so that its run cannot be gone
// on with.
type DamagedError struct {
	File string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("journal %s: %v: `assay fsck --repair` moves it to assay/quarantine, which gives its run up", e.File, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// Unsealed is a run that was interrupted before it was sealed.
type Unsealed struct {
	RunID      string
	Experiment string
	Digest     schemas.Digest
	StartedAt  time.Time
	Token      string
	// Running says that its process still lives: nothing is interrupted.
	Running bool
	holder  string
	events  []journalEvent
}

// alive says whether the process that wrote the journal is still this machine's.
func (u Unsealed) alive() bool { return holderLives(u.holder) }

// holderLives is false for a journal that names none, and for another machine's:
// its processes are not to be found here.
func holderLives(holder string) bool {
	mine := durable.Self()
	return holder != "" && holder != mine && durable.SameNamespace(holder) && !durable.Dead(holder)
}

// FindUnsealed lists the interrupted runs of a store, newest first. sealed says
// whether a run id is in the store's index: a crash between that and the end of
// the journal leaves a journal of a run that is whole.
func FindUnsealed(storeDir string, sealed func(runID string) bool) ([]Unsealed, error) {
	found, _, err := ListUnsealed(storeDir, sealed)
	return found, err
}

// ListUnsealed is FindUnsealed that also says which journals cannot be read; they
// hide no others.
func ListUnsealed(storeDir string, sealed func(runID string) bool) (found []Unsealed, damaged []*DamagedError, err error) {
	list, err := os.ReadDir(journalDir(storeDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("journals: %w", err)
	}
	for _, de := range list {
		id, ok := strings.CutSuffix(de.Name(), ".jsonl")
		if !ok || durable.IsTemp(de.Name()) {
			continue
		}
		path := filepath.Join(journalDir(storeDir), de.Name())
		events, err := readJournal(path)
		var bad *DamagedError
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue // sealed meanwhile
		case errors.As(err, &bad) || errors.Is(err, durable.ErrNotRegular):
			if bad == nil {
				bad = &DamagedError{File: path, Err: err}
			}
			if !sealed(id) && !isLocked(path+".lock") { // else it is about to be written
				damaged = append(damaged, bad)
			}
			continue
		case err != nil:
			return nil, nil, err
		}
		if u, ok := unsealedFrom(events); ok && !sealed(u.RunID) {
			u.Running = u.alive() || isLocked(path+".lock")
			found = append(found, u)
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].StartedAt.After(found[j].StartedAt) })
	return found, damaged, nil
}

// GiveUp forgets an interrupted run: its journal and its work folder go, and with
// the journal all that keeps what it stored from being collected. A run is given up
// only when the process that executed it is provably gone; what it started and left
// is ended by sweep first.
func GiveUp(storeDir string, u Unsealed, sweep func(token string) error) error {
	refuse := func(format string, args ...any) error {
		return &ResumeError{"run " + u.RunID + " cannot be given up: " + fmt.Sprintf(format, args...)}
	}
	path := filepath.Join(journalDir(storeDir), u.RunID+".jsonl")
	if _, err := os.Lstat(path); err != nil {
		return fmt.Errorf("give up run %s: %w", u.RunID, err)
	}
	j, err := openJournal(storeDir, u.RunID)
	if err != nil {
		return err
	}
	// The journal is locked now: nobody else goes on with the run.
	for _, ev := range u.events {
		switch holder := holderOf(ev); {
		case holder == "" || holder == durable.Self() || durable.Dead(holder) || durable.SameKernel(holder) && !durable.SameNamespace(holder):
		case durable.SameNamespace(holder):
			err = refuse("process %d, which executes it, still lives", ev.Start.PID)
		default:
			err = refuse("process %d of another machine executed it, and nobody can tell from here whether it lives; if that machine is gone for good, move %s away", ev.Start.PID, path)
		}
	}
	if err == nil {
		err = sweepRun(path, sweep)
	}
	if err == nil {
		err = removeAll(filepath.Join(storeDir, "assay", "work", u.RunID))
	}
	if err != nil {
		return errors.Join(err, j.close())
	}
	return j.discard()
}

// holderOf names the process that a line says executes the run from there on.
func holderOf(ev journalEvent) string {
	if ev.Start == nil {
		return ""
	}
	return ev.Start.Holder
}

// isLocked says whether a living process holds the lock. It makes nothing: a
// store that can only be read is looked at too.
func isLocked(path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	unlock, ok, err := durable.TryLock(path)
	if err != nil {
		return false
	}
	if !ok {
		return true
	}
	return unlock() != nil
}

func unsealedFrom(events []journalEvent) (Unsealed, bool) {
	if len(events) == 0 || events[0].Start == nil || events[len(events)-1].Event == "seal" {
		return Unsealed{}, false
	}
	s := events[0].Start
	u := Unsealed{RunID: s.RunID, Experiment: s.Experiment, Digest: s.Digest, StartedAt: s.StartedAt, Token: s.Token, events: events}
	for _, ev := range events {
		if ev.Start != nil {
			u.Token, u.holder = ev.Start.Token, ev.Start.Holder
		}
	}
	return u, true
}

// tidy removes what runs whose process is gone left behind: work folders, which a
// resumed run does not use and which may hold logs that were not yet filtered, and
// the journals of those that were sealed.
//
// Processes that still carry the token of such a run are ended too.
func tidy(storeDir string, sealed func(runID string) bool, sweep func(token string) error) error {
	list, err := os.ReadDir(journalDir(storeDir))
	if err != nil {
		return fmt.Errorf("journals: %w", err)
	}
	for _, de := range list {
		id, ok := strings.CutSuffix(de.Name(), ".jsonl")
		if !ok {
			continue
		}
		j, err := openJournal(storeDir, id)
		var busy *ResumeError
		if errors.As(err, &busy) {
			continue
		}
		if err != nil {
			return err
		}
		err = errors.Join(sweepRun(j.path, sweep), removeAll(filepath.Join(storeDir, "assay", "work", id)))
		if err == nil && sealed(id) {
			err = j.discard()
		} else {
			err = errors.Join(err, j.close())
		}
		if err != nil {
			return fmt.Errorf("journal %s: %w", id, err)
		}
	}
	return nil
}

func sweepRun(path string, sweep func(token string) error) error {
	if sweep == nil {
		return nil
	}
	events, err := readJournal(path)
	if err != nil {
		return nil // --resume reports a damaged journal; there is no token to be had here
	}
	for _, ev := range events {
		if ev.Start == nil || holderLives(ev.Start.Holder) {
			continue
		}
		if err := sweep(ev.Start.Token); err != nil {
			return err
		}
	}
	return nil
}
