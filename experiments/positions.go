package experiments

import "strings"

// Position is a place in a file, from 1; Column counts characters.
type Position struct{ Line, Column int }

// Mark is where a key and its value stand. For a table made by a header both are
// the header's name; an element of a list has no key of its own.
type Mark struct{ Key, Value Position }

// Positions maps a JSON pointer (schemas.Pointer) to where it stands.
type Positions map[string]Mark

// At returns the position of the value at a JSON pointer, or of the nearest
// table around it. Zero when nothing is known.
func (p Positions) At(pointer string) Position { return p.value(pointer) }

func (p Positions) value(pointer string) Position {
	for {
		if m, ok := p[pointer]; ok {
			return m.Value
		}
		i := strings.LastIndexByte(pointer, '/')
		if i < 0 {
			return Position{}
		}
		pointer = pointer[:i]
	}
}

func (p Positions) key(pointer string) Position {
	for {
		if m, ok := p[pointer]; ok {
			return m.Key
		}
		i := strings.LastIndexByte(pointer, '/')
		if i < 0 {
			return Position{}
		}
		pointer = pointer[:i]
	}
}
