//go:build !linux

package pipeline

import "io/fs"

func stampOf(fi fs.FileInfo) fileStamp {
	return fileStamp{mode: fi.Mode(), size: fi.Size(), mtime: fi.ModTime().UnixNano()}
}
