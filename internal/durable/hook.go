package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
)

// Op is one kind of mutating system call.
type Op string

// The operations a hook sees.
const (
	OpCreate  Op = "create"
	OpWrite   Op = "write"
	OpFsync   Op = "fsync"
	OpRename  Op = "rename"
	OpMkdir   Op = "mkdir"
	OpRemove  Op = "remove"
	OpSyncDir Op = "syncdir"
	OpSymlink Op = "symlink"
	OpTouch   Op = "touch"
)

// ShortWrite is what a hook returns to let a write stop in the middle: N bytes
// are written, then the write fails with Err.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes: %v", e.N, e.Err) }
func (e *ShortWrite) Unwrap() error { return e.Err }

// Hook is called before an operation on path is carried out. An error it
// returns is the result of the operation, which then does not happen.
type Hook func(op Op, path string) error

var hook atomic.Pointer[Hook]

// SetHook installs h for the whole process and returns the one before; nil
// removes it. It is meant for tests.
func SetHook(h Hook) (previous Hook) {
	var p *Hook
	if h != nil {
		p = &h
	}
	if old := hook.Swap(p); old != nil {
		return *old
	}
	return nil
}

// before asks the hook and shapes its error like the operating system's.
func before(op Op, path string) error {
	h := hook.Load()
	if h == nil {
		return nil
	}
	if err := (*h)(op, path); err != nil {
		return &fs.PathError{Op: string(op), Path: path, Err: err}
	}
	return nil
}

// write asks the hook and writes b, or the part of it that the hook lets through.
func write(w io.Writer, path string, b []byte) (int, error) {
	err := before(OpWrite, path)
	var short *ShortWrite
	if errors.As(err, &short) {
		n, werr := w.Write(b[:min(max(short.N, 0), len(b))])
		return n, errors.Join(werr, err)
	}
	if err != nil {
		return 0, err
	}
	return w.Write(b)
}
