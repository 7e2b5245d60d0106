package foundry

import "errors"

// readMemory reads allocator_events, which both forms of a graph have.
func readMemory(p *parser) (Memory, error) {
	var m Memory
	start := false
	err := p.object(func(key string) error {
		switch key {
		case "start_base_addr":
			n, err := p.whole()
			m.Start, start = Address(n), true
			return err
		case "events":
			return p.list(func() error { return m.event(p) })
		}
		return p.skip()
	})
	if err == nil && !start {
		return m, errors.New("start_base_addr is missing")
	}
	return m, err
}

func (m *Memory) event(p *parser) error {
	var (
		kind      string
		size, ptr uint64
	)
	err := p.object(func(key string) (err error) {
		switch key {
		case "type":
			kind, err = p.text()
		case "size":
			size, err = p.whole()
		case "ptr":
			ptr, err = p.whole()
		default:
			err = p.skip()
		}
		return err
	})
	if err != nil {
		return err
	}
	switch kind {
	case "alloc":
		m.alloc(ptr, size)
	case "free":
		m.Frees++
	case "reserve":
		m.Reserves++
	default:
		return p.wrong("event %.40q: want alloc, free or reserve", kind)
	}
	return nil
}

func (m *Memory) alloc(ptr, size uint64) {
	end := ptr + size
	if end < ptr {
		m.wraps = true
		end = ptr
	}
	if m.Allocs == 0 || Address(ptr) < m.Low {
		m.Low = Address(ptr)
	}
	m.High = max(m.High, Address(end))
	m.Allocs++
}

// outside says which address of m does not lie in [base, base+size), "" for none. Only
// reservations may lie above.
func (m Memory) outside(base, size uint64) string {
	inside := func(a Address) bool { return uint64(a) >= base && uint64(a)-base < size }
	switch {
	case !inside(m.Start):
		return "start_base_addr " + m.Start.String() + " is outside of"
	case m.Allocs == 0:
		return ""
	case m.wraps:
		return "an allocation reaches beyond the last address, and"
	case !inside(m.Low):
		return "an allocation at " + m.Low.String() + " is outside of"
	case uint64(m.High)-base > size:
		return "an allocation reaches to " + m.High.String() + ", beyond"
	}
	return ""
}
