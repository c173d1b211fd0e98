package relay

import (
	"context"
	"time"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// Settings of the tuned contenders, each its best; the page of the floor and of the stand-in is
// given.
const (
	tunedPage    = 2000
	tunedBatch   = 250
	tunedWorkers = 2
	peerPage     = 1000
	stockPage    = 5000
)

var tuned = forwarder.Config{Tuning: postbox.Tuning{PageSize: tunedPage}, BatchSize: tunedBatch, Concurrency: tunedWorkers}

// Throughput drains a backlog into a publisher that does nothing.
func Throughput() measure.Scenario {
	const backlog = 50_000 // in a quick run too: Watermill's forwarder is the slower the longer it is
	into := func(run func(n int, to *sink) measure.Run) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			return run(backlog, newSink(backlog, 0))(ctx, stage)
		}
	}
	return measure.Scenario{
		Name:  "relay",
		About: "drain 50,000 messages of 256 bytes and 1,000 keys into a publisher that does nothing",
		Floor: "by-hand",
		Turns: 2, // Watermill's rate hangs on commits, and those on the disk
		Contenders: []measure.Contender{
			{Name: "ours", Run: into(func(n int, to *sink) measure.Run { return ours(n, to, forwarder.Config{}) })},
			{Name: "watermill", Run: into(func(n int, to *sink) measure.Run { return stock(n, to, 0) })},
			{Name: "ours-tuned", Run: into(func(n int, to *sink) measure.Run { return ours(n, to, tuned) })},
			{Name: "watermill-5000", Run: into(func(n int, to *sink) measure.Run { return stock(n, to, stockPage) })},
			{Name: "oagudo-stand-in", Run: into(func(n int, to *sink) measure.Run { return standIn(n, to, peerPage) })},
			{Name: "by-hand", Run: into(func(n int, to *sink) measure.Run { return floor(n, to, peerPage) })},
		},
		Targets: []measure.Target{
			{Name: "relay-default", Ours: "ours", Other: "watermill", AtLeast: 15},
			{Name: "relay-tuned", Ours: "ours-tuned", Other: "watermill-5000", AtLeast: 3},
			{Name: "relay-tuned", Ours: "ours-tuned", Other: "oagudo-stand-in", AtLeast: 1.2},
			{Name: "relay-floor", Ours: "ours-tuned", Other: "by-hand", AtLeast: 0.85},
			{Name: "wal", Ours: "ours", Limit: 65, Metric: measure.WAL, Lower: true, AtLeast: 1},
		},
	}
}

// SlowBroker drains into a publisher that takes 5 ms a call.
func SlowBroker() measure.Scenario {
	const takes = 5 * time.Millisecond
	return measure.Scenario{
		Name:  "relay-slow-broker",
		About: "drain into a publisher that takes 5 ms, 1,000 keys; Watermill's forwarder fewer messages, since it sends one at a time",
		Floor: "watermill",
		Contenders: []measure.Contender{
			{Name: "ours", Run: func(ctx context.Context, stage *measure.Stage) error {
				n := stage.Scale(20_000, 5_000)
				return ours(n, newSink(n, takes), forwarder.Config{})(ctx, stage)
			}},
			{Name: "watermill", Run: func(ctx context.Context, stage *measure.Stage) error {
				n := stage.Scale(400, 200)
				return stock(n, newSink(n, takes), 0)(ctx, stage)
			}},
		},
		Targets: []measure.Target{{Name: "relay-slow-broker", Ours: "ours", Other: "watermill", AtLeast: 50}},
	}
}
