package remote

import "sync"

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
