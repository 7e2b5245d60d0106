package pipeline

import (
	"context"
	"sync"

	"assay/schemas"
)

// flights lets one execution of a key go on at a time: nodes of a run that turn
// out to have equal keys at the same moment do the work once, and the others find
// its result. The zero value is ready.
type flights struct {
	mu    sync.Mutex
	going map[schemas.Key]chan struct{}
}

// enter waits until nobody executes the key. leave is called once the result, if
// there is one, is stored.
func (f *flights) enter(ctx context.Context, key schemas.Key) (leave func(), err error) {
	for {
		f.mu.Lock()
		if f.going == nil {
			f.going = map[schemas.Key]chan struct{}{}
		}
		other, busy := f.going[key]
		if !busy {
			done := make(chan struct{})
			f.going[key] = done
			f.mu.Unlock()
			return func() {
				f.mu.Lock()
				delete(f.going, key)
				f.mu.Unlock()
				close(done)
			}, nil
		}
		f.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
