package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// large: incompressible data in eight files.
func large(s settings) error {
	data, store := s.path("large"), s.path("store")
	fmt.Printf("\n%d MiB of random bytes in 8 files\n", s.largeMiB)
	if err := writeLarge(data, s.largeMiB); err != nil {
		return err
	}
	res, err := race(s.rounds, append([]contender{
		{"assay", fresh(store), self("seal", store, data), nil},
		{"cp and sync", fresh(s.path("copy")), shell(`cp -r "$1" "$2"; sync -f "$2"`, data, s.path("copy")), nil},
		{"openssl dgst -sha256, two", nil, openssl(data), nil},
	}, peers(s, data)...))
	if err != nil {
		return err
	}
	slower := max(res["cp and sync"].wall, res["openssl dgst -sha256, two"].wall)
	ratio("store: against the slower of cp and sync, openssl", res["assay"].wall, slower, 1.3)
	for _, p := range []string{"restic backup", "borg create"} {
		if r, ok := res[p]; ok {
			ratio("store: against "+p, res["assay"].wall, r.wall, 1)
		}
	}
	memory("store", res["assay"].peakMiB, 256)
	res, err = race(s.rounds, []contender{
		{"assay verify", nil, self("verify", store), nil},
		{"openssl dgst -sha256, two", nil, openssl(filepath.Join(store, "blobs/sha256")), nil},
		{"assay extract", fresh(s.path("out")), self("extract", store, s.path("out")), nil},
		{"cp and sync", fresh(s.path("copy")), shell(`cp -r "$1" "$2"; sync -f "$2"`, data, s.path("copy")), nil},
		{"cp", fresh(s.path("copy")), shell(`cp -r "$1" "$2"`, data, s.path("copy")), nil},
	})
	if err != nil {
		return err
	}
	ratio("verify: against two openssl dgst over the blobs", res["assay verify"].wall, res["openssl dgst -sha256, two"].wall, 1.2)
	ratio("extract, durable: against cp and sync", res["assay extract"].wall, res["cp and sync"].wall, 1.3)
	ratio("extract, durable: against cp alone", res["assay extract"].wall, res["cp"].wall, 1.3)
	return fresh(data, store, s.path("out"), s.path("copy"), s.path("restic"), s.path("borg"))()
}

func openssl(dir string) []string {
	return shell(`find "$1" -type f -size +64k -print0 | xargs -0 -P2 -n1 openssl dgst -sha256 >/dev/null`, dir)
}

func memory(what string, peak, limit int64) {
	verdict := "holds"
	if peak > limit {
		verdict = "DOES NOT HOLD"
	}
	fmt.Printf("%-62s %4d MiB  want at most %d MiB: %s\n", what+": peak memory", peak, limit, verdict)
}

// small: many small files, then the same again, then one of them changed.
func small(s settings) error {
	data, store := s.path("small"), s.path("store")
	fmt.Printf("\n%d files of 1-20 KiB in folders of 100: lines of a log with random numbers, one file in four random bytes; zstd at the fastest level (1)\n", s.files)
	if err := writeSmall(data, s.files); err != nil {
		return err
	}
	waitSettled()
	res, err := race(s.rounds, append([]contender{{"assay", fresh(store), self("put", store, data), nil}}, peers(s, data)...))
	if err != nil {
		return err
	}
	if r, ok := res["restic backup"]; ok {
		ratio("store: against restic backup", res["assay"].wall, r.wall, 0.5)
		ours, err := folderBytes(store)
		if err != nil {
			return err
		}
		theirs, err := folderBytes(s.path("restic"))
		if err != nil {
			return err
		}
		fmt.Printf("%-62s %5.2fx  want at most 1.10x (%d and %d MiB)\n", "size of the store: against restic", float64(ours)/float64(theirs), ours>>20, theirs>>20)
	}
	memory("store", res["assay"].peakMiB, 512)
	changed := 0
	res, err = race(s.rounds, []contender{
		{"assay, unchanged", nil, self("put", store, data), nil},
		{"find -printf", nil, find(data), nil},
		{"assay, one file changed", func() error {
			changed++
			if err := os.WriteFile(filepath.Join(data, "d00000", "f000"), fmt.Append(nil, "changed ", changed), 0o644); err != nil {
				return err
			}
			waitSettled()
			return nil
		}, self("put", store, data), nil},
	})
	if err != nil {
		return err
	}
	ratio("same tree again: against find -printf", res["assay, unchanged"].wall, res["find -printf"].wall, 3)
	fmt.Printf("%-62s %5.2f s\n", "one file changed: more than unchanged by", (res["assay, one file changed"].wall - res["assay, unchanged"].wall).Seconds())
	return fresh(data, store, s.path("restic"), s.path("borg"))()
}

func find(dir string) []string {
	return shell(`find "$1" -printf '%p %s %T@ %C@ %i %m\n' >/dev/null`, dir)
}

// waitSettled waits until files written before are old enough to be remembered.
func waitSettled() { time.Sleep(2100 * time.Millisecond) }

// scale: time and memory for ever more files.
func scale(s settings) error {
	fmt.Println("\never more files of 100-300 bytes")
	const limitMiB = 512
	first := map[string]float64{} // microseconds a file, of the fewest files
	for _, n := range s.scale {
		data, store := s.path("scale"), s.path("store")
		if err := writeTiny(data, n); err != nil {
			return err
		}
		waitSettled()
		for _, c := range []contender{
			{"put", fresh(store), self("put", store, data), nil},
			{"put again", nil, self("put", store, data), nil},
			{"put again and seal", nil, self("seal", store, data), nil},
			{"verify", nil, self("verify", store), nil},
			{"extract", fresh(s.path("out")), self("extract", store, s.path("out")), nil},
		} {
			if c.before != nil {
				if err := c.before(); err != nil {
					return err
				}
			}
			r, err := timed(c)
			if err != nil {
				return err
			}
			each := float64(r.cpu.Microseconds()) / float64(n)
			if first[c.name] == 0 {
				first[c.name] = each
			}
			fmt.Printf("  %8d files  %-20s %8.2f s  processor %6.1f us a file, %.1fx of that for %d, peak %d MiB\n",
				n, c.name, r.wall.Seconds(), each, each/first[c.name], s.scale[0], r.peakMiB)
			if n == s.scale[len(s.scale)-1] {
				memory(fmt.Sprintf("%s of %d files", c.name, n), r.peakMiB, limitMiB)
			}
		}
		if err := fresh(data, store, s.path("out"))(); err != nil {
			return err
		}
	}
	return nil
}

// peers are the backup programs that are installed.
func peers(s settings, data string) []contender {
	restic, borg := s.path("restic"), s.path("borg")
	env := []string{"RESTIC_PASSWORD=bench", "RESTIC_REPOSITORY=" + restic, "RESTIC_CACHE_DIR=" + s.path("restic-cache"),
		"BORG_BASE_DIR=" + s.path("borg-base"), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes", "BORG_RELOCATED_REPO_ACCESS_IS_OK=yes"}
	prepare := func(dirs []string, argv ...string) func() error {
		return func() error {
			if err := fresh(dirs...)(); err != nil {
				return err
			}
			_, err := timed(contender{argv: argv, env: env})
			return err
		}
	}
	return []contender{
		{"restic backup", prepare([]string{restic, s.path("restic-cache")}, "restic", "-q", "init", "--repository-version", "2"), []string{"restic", "-q", "backup", data}, env},
		{"borg create", prepare([]string{borg, s.path("borg-base")}, "borg", "init", "-e", "none", borg), []string{"borg", "create", borg + "::a", data}, env},
	}
}

func writeLarge(dir string, mib int) error {
	rng := rand.NewChaCha8([32]byte{1})
	buf := make([]byte, 1<<20)
	for i := range 8 {
		f, err := create(filepath.Join(dir, fmt.Sprint("f", i)))
		if err != nil {
			return err
		}
		for range mib / 8 {
			_, _ = rng.Read(buf)
			if _, err := f.Write(buf); err != nil {
				return err
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func create(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.Create(path)
}

func writeSmall(dir string, n int) error {
	src := rand.NewChaCha8([32]byte{2})
	rng := rand.New(src)
	for i := range n {
		size := 1<<10 + rng.IntN(19<<10)
		var b []byte
		if i%4 == 3 {
			b = make([]byte, size)
			_, _ = src.Read(b)
		}
		for len(b) < size {
			b = fmt.Appendf(b, "2026-01-02T03:04:%02d.%06dZ INFO engine step=%d batch=%d tokens=%d latency_ms=%.3f kv_cache_usage=%.4f\n",
				rng.IntN(60), rng.IntN(1e6), rng.IntN(1e5), rng.IntN(256), rng.IntN(1e5), rng.Float64()*100, rng.Float64())
		}
		if err := write(filepath.Join(dir, fmt.Sprintf("d%05d", i/100), fmt.Sprintf("f%03d", i%100)), b[:size]); err != nil {
			return err
		}
	}
	return nil
}

func writeTiny(dir string, n int) error {
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range n {
		b := fmt.Appendf(nil, "%0*d\n", 100+rng.IntN(200), rng.Uint64())
		if err := write(filepath.Join(dir, fmt.Sprintf("d%05d", i/1000), fmt.Sprintf("f%03d", i%1000)), b); err != nil {
			return err
		}
	}
	return nil
}

func write(path string, b []byte) error {
	f, err := create(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return err
	}
	return f.Close()
}
