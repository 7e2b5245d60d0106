//go:build !linux

package loadgen

import (
	"errors"
	"time"
)

func hotThread(bool) *string { normal := "normal"; return &normal }

// RaiseProcess is for Linux.
func RaiseProcess() error { return errors.New("raise priority: only on Linux") }

func threadSleep(d time.Duration) { time.Sleep(d) }

func moreProcs(int) (restore func()) { return func() {} }
