package durable

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// A journal is a file of lines, each a JSON object whose last field is a checksum
// of the others:
//
//	{...,"sum":"16 hex digits"}
//
// Whoever does not know of it reads the same objects.

const sumField = `,"sum":"`

// sumTail is the length of the field and what ends the object.
const sumTail = len(sumField) + 16 + len(`"}`)

func lineSum(object []byte) string {
	sum := sha256.Sum256(object)
	return hex.EncodeToString(sum[:8])
}

// SumLine makes a line, with its newline, of a JSON object that has fields.
func SumLine(object []byte) []byte {
	line := append([]byte{}, object[:len(object)-1]...)
	line = append(append(line, sumField...), lineSum(object)...)
	return append(line, '"', '}', '\n')
}

// LineError says which line of a journal cannot be read.
type LineError struct {
	Line int // from 1
	Why  string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d %s", e.Line, e.Why) }

// SummedLines splits a journal. The last line is left out when it has no newline: a
// crash cut it short. So is one in the middle that cannot be read, if the line
// after it is one with which a process goes on after a crash. Anything else that
// cannot be read is a *LineError, with the lines before it. Journals of earlier
// versions have no checksums: a line without one counts when no line has any.
func SummedLines(b []byte, goesOn func(line []byte) bool) ([][]byte, error) {
	var all [][]byte
	summed := false
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		if !whole {
			break
		}
		all, b = append(all, line), rest
		summed = summed || checkSum(line)
	}
	var lines [][]byte
	for i, line := range all {
		why := lineFault(line, summed)
		if why == "" {
			lines = append(lines, line)
			continue
		}
		if i+1 < len(all) && lineFault(all[i+1], summed) == "" && goesOn(all[i+1]) {
			continue
		}
		return lines, &LineError{Line: i + 1, Why: why}
	}
	return lines, nil
}

func lineFault(line []byte, summed bool) string {
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return "is empty"
	case line[0] != '{' || !json.Valid(line):
		return "is no JSON object"
	case summed && !checkSum(line):
		return "is not what was written: its checksum is wrong or missing"
	}
	return ""
}

// checkSum says that a line has a checksum, and that it is right.
func checkSum(line []byte) bool {
	n := len(line) - sumTail
	if n <= 0 || !bytes.HasPrefix(line[n:], []byte(sumField)) {
		return false
	}
	object := append(append([]byte{}, line[:n]...), '}')
	return string(line[n+len(sumField):len(line)-2]) == lineSum(object) && bytes.HasSuffix(line, []byte(`"}`))
}
