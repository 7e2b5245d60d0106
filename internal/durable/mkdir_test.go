package durable

import (
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

// A folder that another makes at the same moment is a folder.
func TestMkdirAllBesideOthers(t *testing.T) {
	root := t.TempDir()
	for i := range 200 {
		dir := filepath.Join(root, strconv.Itoa(i), "a", "b")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := MkdirAll(dir); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}
