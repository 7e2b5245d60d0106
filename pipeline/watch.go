package pipeline

import (
	"context"
	"errors"
	"time"
)

// graceAfterDeath is how long a request has to fail by itself once its service
// is gone, so that its outcome is what it saw.
const graceAfterDeath = 2 * time.Second

// Watch calls stop a moment after the service has gone, until it is undone.
func (s *ServiceView) Watch(stop context.CancelCauseFunc) (unwatch func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ended:
			return
		case <-s.Done: // nil blocks for ever
		}
		grace := time.NewTimer(graceAfterDeath)
		defer grace.Stop()
		select {
		case <-ended:
		case <-grace.C:
			stop(errors.New("the service is gone"))
		}
	}()
	return func() { close(ended); <-done }
}
