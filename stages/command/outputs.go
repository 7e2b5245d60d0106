package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"assay/internal/durable"
	"assay/pipeline"
)

// checkRelative accepts a clean path below the private folder.
func checkRelative(p string) error {
	clean := path.Clean(filepath.ToSlash(p))
	switch {
	case p == "" || clean == ".":
		return fmt.Errorf("path %q: name a file or folder below the private folder", p)
	case path.IsAbs(clean), clean == "..", strings.HasPrefix(clean, "../"):
		return fmt.Errorf("path %q leads out of the private folder", p)
	}
	return nil
}

// checkOutputs refuses declarations that cannot be published, before the program
// is run for nothing.
func checkOutputs(outputs map[string]string) error {
	names := slices.Sorted(maps.Keys(outputs))
	for i, name := range names {
		if err := checkRelative(outputs[name]); err != nil {
			return fmt.Errorf("output %s: %w", name, err)
		}
		for _, other := range names[:i] {
			a, b := path.Clean(outputs[name])+"/", path.Clean(outputs[other])+"/"
			if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
				return fmt.Errorf("outputs %s and %s overlap: declare one of %s and %s", other, name, outputs[other], outputs[name])
			}
		}
	}
	return nil
}

// publish takes every declared output or none: all are looked at before the
// first is moved, and none is declared before all are moved. Nothing that the
// program started runs any more.
func publish(task *pipeline.Task, outputs map[string]string) error {
	if len(outputs) == 0 {
		return nil
	}
	root, err := os.OpenRoot(task.Work)
	if err != nil {
		return fmt.Errorf("outputs: %w", err)
	}
	defer root.Close()
	var missing []error
	names := slices.Sorted(maps.Keys(outputs))
	for _, name := range names {
		if err := check(root, path.Clean(outputs[name])); err != nil {
			missing = append(missing, fmt.Errorf("output %s: %w", name, err))
		}
	}
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	files := map[string]bool{}
	for _, name := range names {
		isFile, err := move(task, name, path.Clean(outputs[name]))
		if err != nil {
			return errors.Join(fmt.Errorf("output %s: %w", name, err), withdraw(task, names))
		}
		files[name] = isFile
	}
	for _, name := range names {
		_, err := task.OutputDir(name)
		if files[name] {
			_, err = task.OutputFile(name, path.Base(path.Clean(outputs[name])))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// move puts an output where it is published: a folder as the output's own folder,
// a file in it under its base name.
func move(task *pipeline.Task, name, rel string) (isFile bool, err error) {
	from, to := filepath.Join(task.Work, filepath.FromSlash(rel)), filepath.Join(task.Dir, "outputs", name)
	fi, err := os.Lstat(from)
	if err != nil {
		return false, err
	}
	if isFile = !fi.IsDir(); isFile {
		to = filepath.Join(to, path.Base(rel))
	}
	if err := durable.MkdirAll(filepath.Dir(to)); err != nil {
		return isFile, err
	}
	return isFile, durable.Rename(from, to)
}

func withdraw(task *pipeline.Task, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, durable.RemoveAll(filepath.Join(task.Dir, "outputs", name)))
	}
	return errors.Join(errs...)
}

// check looks at an output as it lies: links would make it depend on what is
// elsewhere, and a path that passes through one may leave the folder.
func check(root *os.Root, rel string) error {
	parts := strings.Split(rel, "/")
	for i := range parts {
		p := path.Join(parts[:i+1]...)
		fi, err := root.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s was not written", rel)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		if fi.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link; write a file or folder there", p)
		}
	}
	return fs.WalkDir(root.FS(), rel, func(p string, de fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case de.Type()&fs.ModeSymlink != 0:
			return checkLink(root, rel, p)
		case !de.IsDir() && !de.Type().IsRegular():
			return fmt.Errorf("%s is neither a file, a folder nor a link", p)
		}
		return nil
	})
}

// checkLink accepts a relative link within the output that leads to something.
func checkLink(root *os.Root, top, p string) error {
	target, err := root.Readlink(p)
	if err != nil {
		return err
	}
	to := path.Join(path.Dir(p), filepath.ToSlash(target))
	if path.IsAbs(target) || (to != top && !strings.HasPrefix(to, top+"/")) {
		return fmt.Errorf("%s is a link to %s, outside the output", p, target)
	}
	if _, err := root.Stat(p); err != nil {
		return fmt.Errorf("%s is a link to %s, which leads nowhere within the private folder", p, target)
	}
	return nil
}
