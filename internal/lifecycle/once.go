package lifecycle

import (
	"context"
	"fmt"
	"sync"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Once is the life cycle of a component that runs once, until its context ends or it is closed. The
// zero value is not started. It is safe for concurrent use.
type Once struct {
	mu     sync.Mutex
	cancel context.CancelFunc // not nil after the start
	ended  chan struct{}
	closed bool
}

// Begin returns the context of the run, which ends with ctx and with Close. Call end when the run
// has ended. A second run, and a run after Close, is an error, which contains the name.
func (o *Once) Begin(ctx context.Context, name string) (running context.Context, end func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, nil, fmt.Errorf("%s: %w", name, postbox.ErrClosed)
	}
	if o.cancel != nil {
		return nil, nil, fmt.Errorf("%s is already running", name)
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	o.cancel, o.ended = cancel, ended
	return running, func() { cancel(); close(ended) }, nil
}

// Close ends the run, if it has begun, and waits for its end. It can be called any number of times.
func (o *Once) Close() {
	o.mu.Lock()
	o.closed = true
	cancel, ended := o.cancel, o.ended
	o.mu.Unlock()
	if cancel != nil {
		cancel()
		<-ended
	}
}
