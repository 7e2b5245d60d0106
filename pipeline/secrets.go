package pipeline

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"assay/internal/durable"
	"assay/internal/redact"
)

// secrets are those given out so far.
func (r *runner) secrets() *redact.Secrets {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.redactor != nil {
		return r.redactor // it is asked for with every request that is measured
	}
	marks := make(map[string]string, len(r.seenSecrets))
	for name, value := range r.seenSecrets {
		marks[value] = "[secret:" + name + "]"
	}
	r.redactor = redact.New(marks)
	return r.redactor
}

// secretValues are the values alone.
func (r *runner) secretValues() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []string
	for _, value := range r.seenSecrets {
		list = append(list, value)
		if bare := strings.TrimSpace(value); bare != value && bare != "" {
			list = append(list, bare)
		}
	}
	return list
}

func (r *runner) hideSecrets(s string) string { return r.secrets().String(s) }

// filter puts a filter of all secrets in front of a log. Close writes what is
// held back and leaves w open.
func (r *runner) filter(w io.Writer) io.WriteCloser { return filtered{r.secrets().Writer(w)} }

type filtered struct{ *redact.Writer }

func (f filtered) Close() error { return f.Flush() }

// redact replaces secrets in the files below dir that a filter has missed: a
// program may write a log of its own.
func (r *runner) redact(dir string) error {
	secrets := r.secrets()
	if secrets.Empty() {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, de fs.DirEntry, err error) error {
		if err != nil || !de.Type().IsRegular() {
			return err
		}
		mark, err := findInFile(secrets, path)
		if err != nil || mark == "" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return durable.WriteFile(path, []byte(secrets.String(string(b))), 0o644)
	})
}

// refuseSecrets is an error when an output holds a secret, in a name, a link or
// content, compressed content included: a result cannot be edited, so it is not
// archived.
func (r *runner) refuseSecrets(dir string) error {
	secrets := r.secrets()
	if secrets.Empty() {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, de fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		names := rel
		if de.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			names += "\x00" + target
		}
		mark, err := secrets.Find(strings.NewReader(names))
		if err == nil && mark == "" && de.Type().IsRegular() {
			mark, err = findInFile(secrets, path)
		}
		if err != nil || mark == "" {
			return err
		}
		return fmt.Errorf("output %s holds %s: nothing of it was archived; make the program leave the secret out", secrets.String(filepath.ToSlash(rel)), mark)
	})
}

// findInFile looks into a file, and into what it holds when it is compressed.
func findInFile(secrets *redact.Secrets, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return secrets.FindDeep(f)
}
