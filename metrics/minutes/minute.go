package minutes

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/instruments"
)

// The quantiles that a row has.
const median, slow = 0.5, 0.95

// minute counts what this process does with an outbox or a queue, until its numbers are taken.
type minute struct {
	stored, done, failed, dead count
	waits, calls               times
	known                      bool // it has a row already; for the goroutine that writes
}

// count is a number of messages.
type count struct{ n atomic.Int64 }

func (c *count) add(value float64) { c.n.Add(int64(value)) }

// times counts durations by the first bound that is not below them. The last counter is for those
// above all bounds.
type times struct {
	bounds []float64
	counts []atomic.Int64
}

func newTimes() times {
	bounds := instruments.Latency.Buckets
	return times{bounds, make([]atomic.Int64, len(bounds)+1)}
}

func (t times) add(seconds float64) {
	i, _ := slices.BinarySearch(t.bounds, seconds)
	t.counts[i].Add(1)
}

func (t times) take() distribution {
	d := distribution{t.bounds, make([]int64, len(t.counts))}
	for i := range t.counts {
		d.counts[i] = t.counts[i].Swap(0)
	}
	return d
}

func (t times) giveBack(d distribution) {
	for i, n := range d.counts {
		t.counts[i].Add(n)
	}
}

// distribution is how many durations lie below each bound, and above the one before.
type distribution struct {
	bounds []float64
	counts []int64
}

// quantile returns a duration in microseconds below which that part of all lies, as if they were
// spread evenly between two bounds. Above the highest bound it is that one, and without durations
// 0.
func (d distribution) quantile(part float64) int64 {
	all := int64(0)
	for _, n := range d.counts {
		all += n
	}
	below, wanted := 0.0, part*float64(all)
	for i, n := range d.counts[:len(d.bounds)] {
		if n > 0 && below+float64(n) >= wanted {
			from := 0.0
			if i > 0 {
				from = d.bounds[i-1]
			}
			seconds := from + (d.bounds[i]-from)*(wanted-below)/float64(n)
			return int64(seconds * float64(time.Second/time.Microsecond))
		}
		below += float64(n)
	}
	if all == 0 {
		return 0
	}
	return int64(d.bounds[len(d.bounds)-1] * float64(time.Second/time.Microsecond))
}

// row is what a minute had.
type row struct {
	target

	of                         *minute
	stored, done, failed, dead int64
	waits, calls               distribution
}

// take returns the numbers, and begins new ones.
func (m *minute) take(of target) row {
	return row{
		target: of, of: m,
		stored: m.stored.n.Swap(0), done: m.done.n.Swap(0), failed: m.failed.n.Swap(0), dead: m.dead.n.Swap(0),
		waits: m.waits.take(), calls: m.calls.take(),
	}
}

// giveBack adds the numbers to those of the next minute.
func (r row) giveBack() {
	r.of.stored.n.Add(r.stored)
	r.of.done.n.Add(r.done)
	r.of.failed.n.Add(r.failed)
	r.of.dead.n.Add(r.dead)
	r.of.waits.giveBack(r.waits)
	r.of.calls.giveBack(r.calls)
}

// isEmpty says that nothing happened. The first row of a process is written all the same.
func (r row) isEmpty() bool {
	return r.of.known && r.stored+r.done+r.failed+r.dead+sum(r.calls.counts) == 0
}

func sum(numbers []int64) (all int64) {
	for _, n := range numbers {
		all += n
	}
	return all
}
