package relay

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
)

// Latency from commit to publish, by how many messages were faster.
const (
	P50 measure.Metric = "p50 ms"
	P99 measure.Metric = "p99 ms"
)

// Messages come one by one, so many a second.
const latencyRate = 100

// Latency commits messages one by one and takes the time until each is published.
func Latency() measure.Scenario {
	return measure.Scenario{
		Name:    "relay-latency",
		About:   "100 messages a second: from the commit to the call of the publisher, in one process, default settings",
		Picture: P50,
		Contenders: []measure.Contender{
			{Name: "ours", Run: oursLatency},
			{Name: "watermill", Run: stockLatency},
		},
		Targets: []measure.Target{
			{Name: "relay-latency", Ours: "ours", Limit: 2, Metric: P50, Lower: true, AtLeast: 1},
			{Name: "relay-latency", Ours: "ours", Limit: 10, Metric: P99, Lower: true, AtLeast: 1},
			{Name: "relay-latency", Ours: "ours", Other: "watermill", Metric: P50, Lower: true, AtLeast: 100},
		},
	}
}

func oursLatency(ctx context.Context, stage *measure.Stage) error {
	if err := fillOurs(ctx, stage.Setup, 0); err != nil {
		return err
	}
	watch := newStopwatch(stage)
	fwd, ended, err := startOurs(ctx, stage.DB, watch, forwarder.Config{})
	if err != nil {
		return err
	}
	<-fwd.Running()
	publisher, err := forwarder.NewPublisher(stage.DB, forwarder.PublisherConfig{Dialect: postbox.PostgreSQL}, nil)
	if err != nil {
		return err
	}
	err = watch.run(ctx, stage, func(msg *message.Message) error {
		return forwarder.InTx(ctx, stage.DB, func(ctx context.Context, _ *sql.Tx) error {
			postbox.AfterCommit(ctx, func() { watch.committed(msg.UUID) })
			msg.SetContext(ctx)
			return publisher.Publish(load.Topic, msg)
		})
	})
	return errors.Join(err, publisher.Close(), fwd.Close(), <-ended)
}

func stockLatency(ctx context.Context, stage *measure.Stage) error {
	publisher, err := newStockPublisher(stage.Setup)
	if err != nil {
		return err
	}
	if err := publisher.Publish(load.Topic, load.Messages(0, 1)...); err != nil { // makes the tables
		return err
	}
	watch := newStopwatch(stage)
	fwd, ended, err := startStock(ctx, stage.DB, watch, 0)
	if err != nil {
		return err
	}
	<-fwd.Running()
	err = watch.run(ctx, stage, func(msg *message.Message) error { return publishStock(ctx, stage.DB, msg, watch) })
	return errors.Join(err, fwd.Close(), <-ended)
}

func publishStock(ctx context.Context, db *sql.DB, msg *message.Message, watch *stopwatch) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	publisher, err := newStockTxPublisher(tx)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := publisher.Publish(load.Topic, msg); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	watch.committed(msg.UUID)
	return nil
}

// stopwatch is a publisher that takes the time since the commit. Either may come first, where the answer to a commit
// is slow.
type stopwatch struct {
	want int
	done chan struct{}

	mu        sync.Mutex
	commits   map[string]time.Time
	published map[string]time.Time
	latencies []time.Duration
}

func newStopwatch(stage *measure.Stage) *stopwatch {
	return &stopwatch{
		want: stage.Scale(5*latencyRate, 2*latencyRate), done: make(chan struct{}),
		commits: map[string]time.Time{}, published: map[string]time.Time{},
	}
}

// run sends messages at the rate and records how long they took.
func (w *stopwatch) run(ctx context.Context, stage *measure.Stage, send func(*message.Message) error) error {
	if err := stage.Start(ctx); err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / latencyRate)
	defer tick.Stop()
	for _, msg := range load.Messages(0, w.want) {
		<-tick.C
		if err := send(msg); err != nil {
			return err
		}
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.latencies)
	stage.Record(P50, milliseconds(w.latencies[len(w.latencies)/2]))
	stage.Record(P99, milliseconds(w.latencies[len(w.latencies)*99/100]))
	return stage.Stop(w.want)
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

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
