package pipeline

import (
	"io/fs"
	"syscall"
)

func stampOf(fi fs.FileInfo) fileStamp {
	st := fileStamp{mode: fi.Mode(), size: fi.Size(), mtime: fi.ModTime().UnixNano()}
	if sys, ok := fi.Sys().(*syscall.Stat_t); ok {
		st.dev, st.ino, st.ctime = sys.Dev, sys.Ino, sys.Ctim.Nano()
	}
	return st
}
