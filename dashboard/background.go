package dashboard

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
)

// mostBulk is how many bulk actions run in a process at a time.
const mostBulk = 16

// background runs bulk actions, which outlive their requests. It is safe for concurrent use.
type background struct {
	mu      sync.Mutex
	runs    map[int64]*bulkRun
	closed  bool
	running sync.WaitGroup
}

// bulkRun is an action that runs, and then what it has done.
type bulkRun struct {
	bulkKind

	Page, Back, Stop link
	far              atomic.Int64
	cancel           context.CancelFunc
	ended            chan struct{} // closed at the end, after the rest is set
	done             int
	goOn             link
	err              error
}

// Count is how far it is.
func (r *bulkRun) Count() int { return int(r.far.Load()) }

// start runs an action that keeps the actor of a request. The id is random, so that a page of
// another process stops nothing here.
func (b *background) start(ctx context.Context, run *bulkRun, do func(ctx context.Context)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || len(b.runs) == mostBulk {
		return badf("%d bulk actions run in this process, or it stops: wait for one of them, or stop one", mostBulk)
	}
	ctx, run.cancel = context.WithCancel(context.WithoutCancel(ctx))
	id := rand.Int64() //nolint:gosec // who may act may stop
	run.Page, run.Stop, run.ended = to(progressPage, "id", idText(id)), to("bulk-stop", "id", idText(id)), make(chan struct{})
	b.runs[id] = run
	b.running.Go(func() {
		defer b.forget(id)
		defer run.cancel()
		defer close(run.ended)
		do(ctx)
	})
	return nil
}

func (b *background) forget(id int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.runs, id)
}

// all are those that run, in any order, or the one with an id.
func (b *background) all(ids ...int64) (runs []*bulkRun) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, run := range b.runs {
		if len(ids) == 0 || slices.Contains(ids, id) {
			runs = append(runs, run)
		}
	}
	return runs
}

// close stops all actions and waits for them. No other one begins after it.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	for _, run := range b.runs {
		run.cancel()
	}
	b.mu.Unlock()
	b.running.Wait()
}
