package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Latency from commit to publish, by how many messages were faster.
const (
	P50 measure.Metric = "p50 ms"
	P99 measure.Metric = "p99 ms"
)

// pace is how messages come: so many a second, each at its own time, whatever became of those
// before it. Clients is the most that are committed at a time.
type pace struct{ perSecond, clients int }

// due is when the message with this number comes.
func (p pace) due(begin time.Time, number int) time.Time {
	return begin.Add(time.Duration(number) * time.Second / time.Duration(p.perSecond))
}

// stopwatch is a publisher that takes the time since the commit. Either may come first, where the
// answer to a commit is slow.
type stopwatch struct {
	want int
	done chan struct{}

	mu        sync.Mutex
	commits   map[string]time.Time
	published map[string]time.Time
	latencies []time.Duration
}

// newStopwatch returns one that waits for so many messages.
func newStopwatch(want int) *stopwatch {
	return &stopwatch{
		want: want, done: make(chan struct{}),
		commits: make(map[string]time.Time, want), published: make(map[string]time.Time, want),
	}
}

// run sends messages at a pace and records how long they took.
func (w *stopwatch) run(ctx context.Context, stage *measure.Stage, at pace, send func(context.Context, *message.Message) error) error {
	if err := stage.Start(ctx); err != nil {
		return err
	}
	begin := time.Now()
	err := load.Clients(ctx, w.want, at.clients, func(ctx context.Context, i int) error {
		if early := time.Until(at.due(begin, i)); early > 0 {
			<-time.After(early)
		}
		return send(ctx, load.Messages(i, 1)[0])
	})
	if err != nil {
		return err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(stuckTimeout):
		return fmt.Errorf("%d of %d messages came, then none for long", w.count(), w.want)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.latencies)
	stage.Record(P50, milliseconds(w.latencies[len(w.latencies)/2]))
	stage.Record(P99, milliseconds(w.latencies[len(w.latencies)*99/100]))
	return stage.Stop(w.want)
}

// warmUp is how many messages come before the clock starts where that is measured which a running
// service does: on each connection, PostgreSQL plans a prepared statement anew for its first five
// executions.
const warmUp = 100

// runWarm does so after that many messages, whose times are not taken. send calls committed after
// the commit.
func (w *stopwatch) runWarm(
	ctx context.Context, stage *measure.Stage, at pace, before int, send func(ctx context.Context, msg *message.Message, committed func()) error,
) error {
	for _, msg := range load.Messages(0, before) {
		if err := send(ctx, msg, func() {}); err != nil {
			return err
		}
	}
	return w.run(ctx, stage, at, func(ctx context.Context, msg *message.Message) error {
		return send(ctx, msg, func() { w.committed(msg.UUID) })
	})
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

func (w *stopwatch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.latencies)
}

func (w *stopwatch) committed(id string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits[id] = now
	w.pair(id)
}

// Publish takes the time.
func (w *stopwatch) Publish(_ string, messages ...*message.Message) error {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, msg := range messages {
		if _, again := w.published[msg.UUID]; !again {
			w.published[msg.UUID] = now
			w.pair(msg.UUID)
		}
	}
	return nil
}

func (w *stopwatch) pair(id string) {
	committed, published := w.commits[id], w.published[id]
	if committed.IsZero() || published.IsZero() {
		return
	}
	w.latencies = append(w.latencies, max(0, published.Sub(committed)))
	if len(w.latencies) == w.want {
		close(w.done)
	}
}

// Close does nothing.
func (w *stopwatch) Close() error { return nil }
