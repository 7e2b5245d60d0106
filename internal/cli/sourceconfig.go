package cli

import (
	"os"
	"path"
	"path/filepath"

	config "assay/internal/engines/aegaeon"
	"assay/preflight/aegaeon"
	"assay/preflight/source"
	"assay/schemas"
)

// saveConfig is the configuration that archives were saved with, where a validated run
// keeps it.
const saveConfig = "multi-model-save.yaml"

// maxConfigBytes is more than any configuration has.
const maxConfigBytes = 4 << 20

// configFindings holds the configuration of a validated run, from which a service is to
// be started, against what the engine takes, what the archives were saved with, and,
// for a real engine, what lies on this machine.
func (l *loaded) configFindings(dir, name string, r source.Result) []schemas.Finding {
	subject, file := "source run "+name, path.Base(r.Report.LoadConfig)
	loading, err := readSmall(filepath.Join(dir, filepath.FromSlash(r.Report.LoadConfig)))
	if err != nil {
		return []schemas.Finding{{ID: "source.unreadable", Severity: schemas.SeverityUnknown, Subject: subject, Message: file + ": " + err.Error(), Remedy: "give this user the right to read it"}}
	}
	// As it will be started: places of another machine are replaced.
	started, _, err := config.Render(file, loading, config.Changes{Mode: schemas.GraphsLoad, ArchiveDir: filepath.Join(dir, filepath.FromSlash(r.Report.ArchiveRoot)), ModelPaths: l.Machine.Checkpoints})
	if err != nil {
		return []schemas.Finding{{ID: "source.config-yaml", Severity: schemas.SeverityError, Subject: subject, Message: err.Error(), Remedy: "make the validated run again, or name another one"}}
	}
	findings := aegaeon.Check(subject, file, started).Findings
	if saved, err := readSmall(filepath.Join(dir, saveConfig)); err == nil {
		findings = append(findings, aegaeon.LoadDiffers(subject, file, saved, loading, true)...)
	}
	if !l.emulatesSource() {
		findings = append(findings, aegaeon.Paths(subject, file, r.Config, l.Machine.Checkpoints)...)
	}
	return findings
}

func readSmall(p string) ([]byte, error) {
	info, err := os.Lstat(p)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfigBytes {
		return nil, os.ErrInvalid
	}
	return os.ReadFile(p)
}
