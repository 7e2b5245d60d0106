//go:build !linux

package loadgen

import "time"

func hotThread(bool) *string { normal := "normal"; return &normal }

func threadSleep(d time.Duration) { time.Sleep(d) }

func moreProcs(int) (restore func()) { return func() {} }
