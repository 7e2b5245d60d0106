package experiments

import (
	"fmt"
	"sort"
	"strings"
)

// maxProblems is how many faults are reported at once.
const maxProblems = 20

// Problem is one fault of an experiment file, machine file or --set.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`   // from 1; 0 when unknown
	Column  int    `json:"column,omitempty"` // in characters, from 1
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // the nearest valid name
}

func (p Problem) String() string {
	s := p.File + ": "
	if p.Line > 0 {
		s = fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	s += p.Message
	if p.Hint != "" {
		s += fmt.Sprintf(" (did you mean %q?)", p.Hint)
	}
	return s
}

// InvalidError lists the faults of a file, one per line, in the file's order.
type InvalidError struct{ Problems []Problem }

func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// problems collects faults of one file.
type problems struct {
	file string
	pos  Positions
	list []Problem
}

// at adds a fault of the value at a JSON pointer.
func (p *problems) at(pointer, hint, format string, args ...any) {
	p.add(p.pos.value(pointer), hint, format, args...)
}

// atKey adds a fault of the key at a JSON pointer.
func (p *problems) atKey(pointer, hint, format string, args ...any) {
	p.add(p.pos.key(pointer), hint, format, args...)
}

func (p *problems) add(where Position, hint, format string, args ...any) {
	p.list = append(p.list, Problem{File: p.file, Line: where.Line, Column: where.Column,
		Message: fmt.Sprintf(format, args...), Hint: hint})
}

// option adds a fault of the command line.
func (p *problems) option(name, hint, format string, args ...any) {
	p.list = append(p.list, Problem{File: name, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	sort.SliceStable(p.list, func(i, j int) bool {
		a, b := p.list[i], p.list[j]
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
	return &InvalidError{Problems: p.list[:min(len(p.list), maxProblems)]}
}
