package overload

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// gate is where messages are handled: slowly, or without a delay not at all, until it is opened.
type gate struct {
	delay   time.Duration
	opened  chan struct{}
	opening sync.Once

	running, most, handled atomic.Int64
}

func newGate(delay time.Duration) *gate { return &gate{delay: delay, opened: make(chan struct{})} }

// open makes handling quick. It can be called twice.
func (g *gate) open() { g.opening.Do(func() { close(g.opened) }) }

// pass handles a message.
func (g *gate) pass(ctx context.Context) error {
	running := g.running.Add(1)
	defer g.running.Add(-1)
	for most := g.most.Load(); running > most && !g.most.CompareAndSwap(most, running); {
		most = g.most.Load()
	}
	var over <-chan time.Time
	if g.delay > 0 {
		slow := time.NewTimer(g.delay)
		defer slow.Stop()
		over = slow.C
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-over:
	case <-g.opened:
	}
	g.handled.Add(1)
	return nil
}

// order notes the numbers of each key as they come. Without faults each comes once, and next to the
// one before.
type order struct {
	mu                sync.Mutex
	last              map[string]int64
	came              int64
	twice, disordered int64
}

func (o *order) note(key string, seq int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.came++
	switch last := o.last[key]; {
	case seq <= last:
		o.twice++
	case seq > last+1:
		o.disordered++
	}
	o.last[key] = max(o.last[key], seq)
}
