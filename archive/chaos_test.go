package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"assay/schemas"
)

// chaosEnv makes the test binary a process that commits, removes, tags, collects
// and repairs until it is killed.
const chaosEnv = "ARCHIVE_TEST_CHAOS"

func chaosChild(seed, dir string) {
	n, _ := strconv.ParseUint(seed, 10, 64)
	random := rand.New(rand.NewPCG(n, 1))
	for i := 0; ; i++ {
		s, err := OpenOrCreate(dir)
		if err == nil {
			err = chaosStep(s, random, fmt.Sprintf("c%d-%d", n, i))
		}
		if err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, fs.ErrNotExist) {
			fmt.Printf("error %q\n", err.Error())
		}
	}
}

func chaosStep(s *Store, random *rand.Rand, id string) error {
	ctx := context.Background()
	runs, err := s.Runs(ctx)
	if err != nil {
		return err
	}
	var some schemas.Digest
	if len(runs) > 0 {
		some = runs[random.IntN(len(runs))].Digest
	}
	switch what := random.IntN(10); {
	case what < 4:
		release, err := s.Lease(ctx, id)
		if err != nil {
			return err
		}
		m := &childTB{}
		defer m.clean()
		stages := tinyStages()
		stages["gen"]["outputs/x/f"] = strings.Repeat(id, 100)
		req, err := runRequest(m, s, id, stages)
		if err != nil {
			return errors.Join(err, release())
		}
		d, err := s.Seal(ctx, req)
		if err == nil {
			fmt.Printf("committed %s\n", d)
		}
		return errors.Join(err, release())
	case what < 6 && some != "":
		fmt.Printf("removing %s\n", some)
		_, err = s.Remove(ctx, []schemas.Digest{some}, true)
	case what < 7 && some != "":
		err = s.Tag(ctx, "t"+strconv.Itoa(random.IntN(5)), some)
	case what < 9:
		_, err = s.Collect(ctx, GCOptions{Apply: true})
	default:
		_, err = s.Fsck(ctx, FsckOptions{Repair: true})
	}
	return err
}

// Processes that do everything at once are killed at any moment and begin anew:
// no run that was committed and not removed is lost, every run is whole, and no
// repair finds anything that would have to be taken out of the way.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	dir, lasting := t.TempDir()+"/s", 3*time.Second
	if os.Getenv("ASSAY_EXHAUSTIVE") != "" {
		lasting = time.Minute
	}
	var mu sync.Mutex
	committed, removed := map[schemas.Digest]bool{}, map[schemas.Digest]bool{}
	listen := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "committed":
			committed[schemas.Digest(rest)] = true
		case "removing":
			removed[schemas.Digest(rest)] = true
		case "error":
			t.Error(rest)
		}
	}
	end := time.Now().Add(lasting)
	kills := 0
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 7))
			for time.Now().Before(end) {
				cmd := exec.Command(os.Args[0], dir)
				cmd.Env = append(os.Environ(), chaosEnv+"="+strconv.FormatUint(random.Uint64(), 10))
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					t.Error(err)
					return
				}
				timer := time.AfterFunc(time.Duration(50+random.IntN(400))*time.Millisecond, func() { _ = cmd.Process.Kill() })
				lines := bufio.NewScanner(out)
				for lines.Scan() {
					listen(lines.Text())
				}
				_ = cmd.Wait()
				timer.Stop()
				mu.Lock()
				kills++
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	s, err := OpenOrCreate(dir)
	if err != nil {
		t.Fatal(err)
	}
	have := map[schemas.Digest]bool{}
	for _, d := range listed(t, s) {
		have[d] = true
	}
	for d := range committed {
		if !have[d] && !removed[d] {
			t.Errorf("run %s was committed, and is lost", d.Short())
		}
	}
	if r := check(t, s, false); !r.Sound {
		t.Errorf("%+v", r.Findings)
	}
	if entries, err := os.ReadDir(s.path(quarantineDir)); err == nil && len(entries) > 0 {
		t.Errorf("%d files are in quarantine, the first is %s", len(entries), entries[0].Name())
	}
	t.Logf("%d processes killed, %d runs committed, %d to be removed, %d left", kills, len(committed), len(removed), len(have))
}
