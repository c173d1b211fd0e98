package lifecycle

import (
	"context"
	"sync"
)

// Failures are the errors of parts of a router that have started and cannot go on. Run of a Watermill router returns no such error, so they travel by the context that it
// gives to its subscribers.
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

// Fail notes that a part of the router that ctx comes from has failed, and ends the run. It returns false unless the context is of [Collect].
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

// End ends the context when the run has ended, and returns the first error.
func (f *Failures) End() error {
	f.stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first
}
