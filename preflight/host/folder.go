package host

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"assay/internal/fingerprint"
	"assay/schemas"
)

// maxFiles of a folder are listed.
const maxFiles = 10000

// RecordFolder lists a folder of weights and computes the fingerprint of its headers.
func RecordFolder(ctx context.Context, model, dir string) schemas.HostFolder {
	out := schemas.HostFolder{Model: model, Path: dir}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return ctx.Err()
		case len(out.Files) == maxFiles:
			return fmt.Errorf("more than %d files", maxFiles)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out.Files = append(out.Files, schemas.HostFile{Name: name, Bytes: info.Size()})
		return nil
	})
	if err == nil {
		out.Fingerprint, err = fingerprint.Of(ctx, dir, fingerprint.Header, nil)
	}
	if err != nil {
		out.Problem = err.Error()
	}
	return out
}

// Folder judges a recorded folder of weights: what its files hold was not recorded.
func Folder(subject string, f schemas.HostFolder) schemas.Finding {
	out := schemas.Finding{ID: "host.model", Severity: schemas.SeverityError, Subject: subject, Remedy: "fetch the model there, then record the facts again"}
	weights, config, total := 0, false, int64(0)
	for _, file := range f.Files {
		total += file.Bytes
		switch filepath.Ext(file.Name) {
		case ".safetensors", ".gguf":
			if weights++; file.Bytes == 0 {
				out.Message = fmt.Sprintf("%s: %s is empty", f.Path, file.Name)
				return out
			}
		}
		config = config || file.Name == "config.json" || strings.HasSuffix(file.Name, ".gguf")
	}
	switch {
	case f.Problem != "":
		out.Message = f.Path + ": " + f.Problem
	case weights == 0:
		out.Message = f.Path + " holds no weights"
	case !config:
		out.Message = f.Path + " has no config.json"
	default:
		out.Severity, out.Remedy = schemas.SeverityPass, ""
		out.Message = fmt.Sprintf("%s holds %d files of weights, %s", f.Path, weights, schemas.Size(total))
	}
	return out
}
