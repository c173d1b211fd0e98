package lifecycle

import (
	"context"
	"sync"
)

// Failures collects the errors of parts of a router that have started and cannot continue. Run of a
// Watermill router does not return such an error, so the errors travel through the context that the
// router gives to its subscribers.
type Failures struct {
	stop context.CancelFunc

	mu    sync.Mutex
	first error
}

type failuresKey struct{}

// Collect returns a context for the run of a router, which ends when a part of it fails.
func Collect(ctx context.Context) (context.Context, *Failures) {
	f := &Failures{}
	ctx, f.stop = context.WithCancel(ctx)
	return context.WithValue(ctx, failuresKey{}, f), f
}

// Fail records that a part of the router that ctx comes from has failed, and ends the run. It
// returns false unless the context comes from [Collect].
func Fail(ctx context.Context, err error) bool {
	f, collected := ctx.Value(failuresKey{}).(*Failures)
	if !collected {
		return false
	}
	f.mu.Lock()
	if f.first == nil {
		f.first = err
	}
	f.mu.Unlock()
	f.stop()
	return true
}

// End ends the context after the run, and returns the first error.
func (f *Failures) End() error {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}
