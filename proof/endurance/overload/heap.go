package overload

import (
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	// liveHeap is what the last run of the garbage collector found in use: what a program holds,
	// without its garbage.
	liveHeap = "/gc/heap/live:bytes"
	// lookEvery is more often than the collector runs.
	lookEvery = 20 * time.Millisecond
)

// heap watches how far the live heap grows.
type heap struct {
	ending, ended chan struct{}
	peak          int64
}

// watchHeap begins with what is there now.
func watchHeap() *heap {
	h := &heap{ending: make(chan struct{}), ended: make(chan struct{})}
	runtime.GC()
	runtime.GC() // what pools hold survives one
	floor := live()
	go func() {
		defer close(h.ended)
		again := time.NewTicker(lookEvery)
		defer again.Stop()
		for {
			h.peak = max(h.peak, live()-floor)
			select {
			case <-h.ending:
				return
			case <-again.C:
			}
		}
	}()
	return h
}

// stop returns the most that the live heap has grown.
func (h *heap) stop() int64 {
	close(h.ending)
	<-h.ended
	return h.peak
}

func live() int64 {
	sample := []metrics.Sample{{Name: liveHeap}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()) //nolint:gosec // no heap is that large
}
