package supervise

import (
	"context"
	"errors"
	"fmt"
	"syscall"
)

// Run starts spec and waits until its whole tree has ended. When ctx ends first,
// the root gets SIGTERM and, after spec.Grace, the tree is killed; the error then
// wraps ctx's cause. The code is the root's exit code; it is -1 with an error
// when the root did not start or a signal ended it (*SignalError).
func Run(ctx context.Context, spec Spec) (int, error) {
	p, err := Start(ctx, spec)
	if err != nil {
		return -1, err
	}
	stopped := false
	select {
	case <-p.Done():
	case <-ctx.Done():
		stopped = true
		p.Stop(syscall.SIGTERM, p.grace)
	}
	code, err := p.Wait()
	if !stopped {
		return code, err
	}
	cause := fmt.Errorf("%s: stopped: %w", p.program, context.Cause(ctx))
	var sig *SignalError
	if err != nil && !errors.As(err, &sig) {
		return code, errors.Join(cause, err)
	}
	return code, cause
}
