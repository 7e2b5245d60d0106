package emulated

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"assay/internal/engines/emulated/foundry"
	"assay/internal/serving"
)

// graphs keep the archives of decode graphs: a model that decodes for the first time
// is saved, or the archives of all are checked at the start.
type graphs struct {
	l       *live
	config  CUDAGraph
	saving  sync.WaitGroup
	mu      sync.Mutex
	err     error
	binding map[string]string // base models by name of a model
	saved   map[string]chan struct{}
}

func openGraphs(l *live) (*graphs, error) {
	c := l.s.config.CUDAGraph
	if c == nil || c.Mode == graphsOff {
		return nil, nil
	}
	g := &graphs{l: l, config: *c, binding: map[string]string{}, saved: map[string]chan struct{}{}}
	for _, a := range l.s.config.bases() {
		g.binding[a.Name] = a.Base
	}
	if c.Mode == graphsSave {
		list, err := os.ReadDir(c.ArchiveDir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cuda_graph.archive_dir: %w", err)
		}
		if len(list) > 0 {
			return nil, fmt.Errorf("cuda_graph.archive_dir: %s is not empty: mode save wants a new folder", c.ArchiveDir)
		}
		return g, nil
	}
	for _, m := range l.s.config.Models {
		if err := g.load(m.Name); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func (g *graphs) spec(model string) foundry.Spec {
	g.mu.Lock()
	defer g.mu.Unlock()
	sum := sha256.Sum256([]byte("assay-emulated weights\x00" + g.binding[model] + "\x00" + g.l.config.Device.Name))
	return foundry.Spec{
		Model: model, Binding: hex.EncodeToString(sum[:]), BatchSizes: g.config.batchSizes(), SeqLenBucket: g.config.SeqLenBucket,
		BaseAddress: g.config.BaseAddress, RegionSizeBytes: g.config.RegionSizeBytes, ScratchSizeBytes: g.config.ScratchSizeBytes,
	}
}

func (g *graphs) load(model string) error {
	n, err := foundry.Load(g.config.ArchiveDir, g.spec(model))
	if err != nil {
		return fmt.Errorf("cuda_graph: %w", err)
	}
	g.l.s.line("INFO %s rank 0: loaded %d Foundry decode graph shapes", model, n)
	return nil
}

// known takes a new model in; to load graphs, it must have an archive.
func (g *graphs) known(model, base string) error {
	g.mu.Lock()
	g.binding[model] = base
	g.mu.Unlock()
	if g.config.Mode == graphsLoad {
		return g.load(model)
	}
	return nil
}

// observe saves a model whose graphs were captured, and notes the first replay.
func (g *graphs) observe(e serving.Event) {
	model := g.l.name(e.Model)
	switch e.Kind {
	case serving.EventReplay:
		saved := g.saved[model]
		g.saving.Go(func() { // the log tells of what was captured first
			if saved != nil {
				<-saved
			}
			g.l.s.line("INFO %s rank 0: Foundry decode replay active", model)
		})
	case serving.EventCapture:
		saved := make(chan struct{})
		g.saved[model] = saved
		g.saving.Go(func() {
			defer close(saved)
			n, err := foundry.Save(g.config.ArchiveDir, g.spec(model))
			if err != nil {
				g.mu.Lock()
				g.err = errors.Join(g.err, err)
				g.mu.Unlock()
				g.l.s.line("ERROR %s rank 0: %v", model, err)
				return
			}
			g.l.s.line("INFO %s rank 0: captured %d Foundry decode graphs", model, n)
		})
	}
}

// close waits for what is being saved and returns what went wrong.
func (g *graphs) close() error {
	g.saving.Wait()
	return g.err
}
