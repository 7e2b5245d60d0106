package pipeline

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"assay/internal/durable"
)

// secretValues returns the secrets given out so far: value -> what to print instead.
func (r *runner) secretValues() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]string, len(r.seenSecrets))
	for name, value := range r.seenSecrets {
		out[value] = "[secret:" + name + "]"
	}
	return out
}

func (r *runner) hideSecrets(s string) string {
	for value, mark := range r.secretValues() {
		s = strings.ReplaceAll(s, value, mark)
	}
	return s
}

// redact replaces secrets in the files below dir: a program may print what it
// was given.
func (r *runner) redact(dir string) error {
	secrets := r.secretValues()
	if len(secrets) == 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, de fs.DirEntry, err error) error {
		if err != nil || !de.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		clean := b
		for value, mark := range secrets {
			clean = bytes.ReplaceAll(clean, []byte(value), []byte(mark))
		}
		if bytes.Equal(clean, b) {
			return nil
		}
		return durable.WriteFile(path, clean, 0o644)
	})
}

// refuseSecrets is an error when an output holds a secret: a result cannot be
// edited, so it is not archived.
func (r *runner) refuseSecrets(dir string) error {
	secrets := r.secretValues()
	if len(secrets) == 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, de fs.DirEntry, err error) error {
		if err != nil || !de.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for value, mark := range secrets {
			if bytes.Contains(b, []byte(value)) {
				rel, _ := filepath.Rel(dir, path)
				return fmt.Errorf("output %s holds %s: nothing of it was archived; make the program leave the secret out", filepath.ToSlash(rel), mark)
			}
		}
		return nil
	})
}
