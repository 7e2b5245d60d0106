package durable

import (
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
)

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
