package pypto

import (
	"os"
	"path/filepath"
	"strings"

	"assay/schemas"
)

// maxCacheFolders are looked at of a cache.
const maxCacheFolders = 10_000

// cache checks the variables of the cache of compiled programs, of which there are two
// schemes: folders by program below PYPTO_PROG_BUILD_DIR, and a persistent cache that
// this variable bypasses.
func (c *checker) cache(set settings, f Facts) {
	build, on := f.Env["PYPTO_PROG_BUILD_DIR"], f.Env["PYPTO_CACHE"] == "1"
	newer := strings.Contains(f.Help, "--no-use-compile-cache")
	switch {
	case build != "" && (on || newer):
		c.warn("pypto.compile-cache", "unset PYPTO_PROG_BUILD_DIR", "PYPTO_PROG_BUILD_DIR is set: it bypasses the persistent cache of compiled programs")
	case set.has("--use-compile-cache") && build == "" && f.Help != "" && !newer:
		c.warn("pypto.compile-cache", "set PYPTO_PROG_BUILD_DIR", "--use-compile-cache has no folder without PYPTO_PROG_BUILD_DIR: every start compiles, for minutes")
	case build == "" && !on && !set.has("--use-compile-cache"):
		c.add("pypto.compile-cache", schemas.SeverityInfo, "set PYPTO_CACHE=1, or use --use-compile-cache", "compiled programs are not kept: every start compiles, for minutes")
	}
	if build != "" && !filepath.IsAbs(build) {
		c.warn("pypto.compile-cache", "write the absolute path", "PYPTO_PROG_BUILD_DIR %.80q depends on the working folder", build)
	}
}

// CompileCache checks a folder of the older scheme, WORKER/PROGRAM: what is complete
// in it, and whether it says what it was compiled for.
func CompileCache(subject, dir string) []schemas.Finding {
	c := &checker{subject: subject}
	workers, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		c.add("pypto.compile-cache", schemas.SeverityInfo, "", "the cache %s does not exist yet: the first start compiles", dir)
		return c.findings
	}
	if err != nil {
		c.unknown("pypto.compile-cache", "check the folder", "the cache cannot be read: %v", err)
		return c.findings
	}
	whole, looked := 0, 0
	for _, w := range workers {
		if !w.IsDir() {
			continue
		}
		programs, err := os.ReadDir(filepath.Join(dir, w.Name()))
		if looked += len(programs); err != nil || looked > maxCacheFolders {
			c.unknown("pypto.compile-cache", "check the folder", "the cache %s cannot be looked through: more than %d folders, or %v", dir, maxCacheFolders, err)
			return c.findings
		}
		for _, p := range programs {
			if p.IsDir() && c.program(filepath.Join(dir, w.Name(), p.Name())) {
				whole++
			}
		}
	}
	if len(c.findings) == 0 {
		c.add("pypto.compile-cache", schemas.SeverityPass, "", "%d compiled programs are complete", whole)
	}
	return c.findings
}

// program says whether a folder holds a whole compiled program.
func (c *checker) program(dir string) bool {
	has := func(name string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular() && info.Size() > 0
	}
	switch {
	case strings.Contains(filepath.Base(dir), ".tmp."):
		c.warn("pypto.compile-cache", "remove it when no service runs", "%s is left of a start that was broken off", dir)
	case !has("distributed_meta.json"):
		c.warn("pypto.compile-cache", "remove it: the next start compiles it", "%s is not whole: distributed_meta.json is missing or empty", dir)
	case !has("fingerprint.txt"):
		c.warn("pypto.compile-cache", "remove it after every change of the program", "%s does not say what it was compiled for: it is used even when it is out of date", dir)
	default:
		return true
	}
	return false
}
