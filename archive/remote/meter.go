package remote

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// meter adds up what several goroutines move.
type meter struct {
	mu   sync.Mutex
	now  Progress
	tell func(Progress)
}

func newMeter(tell func(Progress)) *meter { return &meter{tell: tell} }

func (m *meter) add(done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Done += done
	m.now.Total += total
	if m.tell != nil {
		m.tell(m.now)
	}
}

func (m *meter) phase(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Phase = name
	if m.tell != nil {
		m.tell(m.now)
	}
}

// waits tells of waiting, once while several wait at the same time.
type waits struct {
	mu    sync.Mutex
	tell  func(string)
	until time.Time
}

func (w *waits) say(d time.Duration, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.tell == nil || now.Before(w.until) {
		return
	}
	w.until = now.Add(d)
	w.tell(fmt.Sprintf("%s: trying again in %s", why, d.Round(100*time.Millisecond)))
}

// wait says why it waits, and waits.
func (c *client) wait(ctx context.Context, d time.Duration, why string) error {
	c.waits.say(d, why)
	return c.tune.sleep(ctx, d)
}
