package load

import "sync"

// Group handles together what comes while the batch before is being handled, as one does by hand.
type Group[T any] struct {
	most    int
	handle  func(batch []T) error
	waiting chan grouped[T]
	done    sync.WaitGroup
}

type grouped[T any] struct {
	item  T
	ended chan error
}

// NewGroup returns a group whose batches have so many items at most, and of which so many are
// handled at a time. Close ends it.
func NewGroup[T any](most, atATime int, handle func(batch []T) error) *Group[T] {
	g := &Group[T]{most: most, handle: handle, waiting: make(chan grouped[T], most)}
	for range atATime {
		g.done.Go(g.run)
	}
	return g
}

// Do returns when the batch with the item has been handled.
func (g *Group[T]) Do(item T) error {
	one := grouped[T]{item: item, ended: make(chan error, 1)}
	g.waiting <- one
	return <-one.ended
}

// Close waits for what was begun. Nothing may come any more.
func (g *Group[T]) Close() {
	close(g.waiting)
	g.done.Wait()
}

func (g *Group[T]) run() {
	for first := range g.waiting {
		batch := []grouped[T]{first}
		for len(g.waiting) > 0 && len(batch) < g.most {
			batch = append(batch, <-g.waiting)
		}
		items := make([]T, len(batch))
		for i, one := range batch {
			items[i] = one.item
		}
		err := g.handle(items)
		for _, one := range batch {
			one.ended <- err
		}
	}
}
