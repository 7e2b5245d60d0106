package engines

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"assay/internal/durable"
	"assay/internal/engines/aegaeon"
	"assay/schemas"
)

// StartedConfig is Aegaeon's configuration as it is started with, in LogDir.
const StartedConfig = "aegaeon.yaml"

// maxWrittenConfig is more than any configuration has.
const maxWrittenConfig = 4 << 20

// started is the configuration that a service is started with.
type started struct {
	file    string // "" for none
	archive string // folder of archives of CUDA graphs, "" for none
	record  *schemas.ServiceConfig
}

// render writes the configuration that the service is started with: what differs
// from the one written is the mode, the folder of archives and paths of models.
func render(l Launch, s settings) (started, error) {
	if s.AegaeonConfig == "" {
		if s.GraphMode != "" || s.GraphArchive != "" {
			return started{}, fmt.Errorf("graph_mode and graph_archive change what aegaeon_config says: give that too")
		}
		return started{}, nil
	}
	f, err := durable.OpenRegular(s.AegaeonConfig)
	if err != nil {
		return started{}, fmt.Errorf("aegaeon_config: %w", err)
	}
	defer f.Close()
	written, err := io.ReadAll(io.LimitReader(f, maxWrittenConfig+1))
	if err != nil {
		return started{}, fmt.Errorf("aegaeon_config: %w", err)
	}
	if len(written) > maxWrittenConfig {
		return started{}, fmt.Errorf("aegaeon_config: %s is larger than %d bytes", s.AegaeonConfig, maxWrittenConfig)
	}
	c, err := aegaeon.ParseConfig(s.AegaeonConfig, written)
	if err != nil {
		return started{}, fmt.Errorf("aegaeon_config: %w", err)
	}
	out := started{}
	if out.archive, err = archiveOf(l, s, c); err != nil {
		return started{}, err
	}
	b, replaced, err := aegaeon.Render(s.AegaeonConfig, written, aegaeon.Changes{Mode: s.GraphMode, ArchiveDir: out.archive, ModelPaths: l.ModelPaths})
	if err != nil {
		return started{}, fmt.Errorf("aegaeon_config: %w", err)
	}
	if out.file, err = filepath.Abs(filepath.Join(l.LogDir, StartedConfig)); err != nil {
		return started{}, err
	}
	if err := durable.WriteFile(out.file, b, 0o644); err != nil {
		return started{}, fmt.Errorf("aegaeon_config: %w", err)
	}
	out.record = &schemas.ServiceConfig{File: StartedConfig, Written: schemas.DigestOf(written), Started: schemas.DigestOf(b), Replaced: append([]string{}, replaced...)}
	return out, nil
}

// archiveOf is the folder of archives: the one given, else that of the source run,
// else the one written, which is relative to its file; a save has a new one.
func archiveOf(l Launch, s settings, c aegaeon.Config) (string, error) {
	mode := s.GraphMode
	if mode == "" {
		mode = string(c.Server.CUDAGraph.Mode)
	}
	dir := c.Server.CUDAGraph.ArchiveDir
	switch {
	case mode == schemas.GraphsOff:
		return "", nil
	case s.GraphArchive != "":
		return filepath.Abs(s.GraphArchive)
	case mode == schemas.GraphsLoad && l.SourceArchive != "":
		return l.SourceArchive, nil
	case mode == schemas.GraphsSave && l.WorkDir != "":
		dir = filepath.Join(l.WorkDir, "archive")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("folder of archives: %w", err)
		}
		return filepath.Abs(dir)
	case dir == "":
		return "", fmt.Errorf("graph_archive: is missing: graph_mode %s wants a folder of archives", mode)
	case filepath.IsAbs(dir):
		return dir, nil
	}
	return filepath.Abs(filepath.Join(filepath.Dir(s.AegaeonConfig), filepath.FromSlash(dir)))
}

// withConfig puts the configuration's place into an argument.
func (r started) withConfig(arg string) string {
	if r.file == "" {
		return arg
	}
	return strings.ReplaceAll(arg, "{config}", r.file)
}
