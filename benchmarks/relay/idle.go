package relay

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/queue"
)

// PerSecond counts statements of a process that has nothing to do.
const PerSecond measure.Metric = "statements/s"

// Idle leaves a forwarder, and a subscriber of a queue, without work.
func Idle() measure.Scenario {
	return measure.Scenario{
		Name:      "idle",
		About:     "statements of a forwarder, and of a worker of a queue, that have nothing to do, with default settings",
		MaxRounds: 1,
		Picture:   PerSecond,
		Contenders: []measure.Contender{
			{Name: "forwarder", Run: func(ctx context.Context, stage *measure.Stage) error {
				return idle(ctx, stage, func() (func() error, error) {
					fwd, ended, err := startOurs(ctx, stage.DB, newSink(1, 0), forwarder.Config{})
					return func() error { return errors.Join(fwd.Close(), <-ended) }, err
				})
			}},
			{Name: "worker", Run: func(ctx context.Context, stage *measure.Stage) error {
				return idle(ctx, stage, func() (func() error, error) { return idleWorker(ctx, stage) })
			}},
		},
		Targets: []measure.Target{
			{Name: "idle", Ours: "forwarder", Limit: 2, Metric: PerSecond, Lower: true, AtLeast: 1},
			{Name: "idle", Ours: "worker", Limit: 2, Metric: PerSecond, Lower: true, AtLeast: 1},
		},
	}
}

// TailIdle leaves forwarders without work that tail the log: one with default settings, and one
// that polls once a minute.
func TailIdle() measure.Scenario {
	leave := func(pollMax time.Duration) measure.Run {
		return func(ctx context.Context, stage *measure.Stage) error {
			a, err := startApart(ctx, stage, newSink(1, 0), true, forwarder.Config{Tuning: postbox.Tuning{PollMax: pollMax}})
			if err != nil {
				return err
			}
			return watchIdle(ctx, stage, tailIdleWindow, a.close)
		}
	}
	return measure.Scenario{
		Name:      "tail-idle",
		About:     "statements of a forwarder that tails the log and has nothing to do, in a minute, with default settings, and with PollMax of a minute",
		Log:       true,
		MaxRounds: 1,
		Picture:   PerSecond,
		Contenders: []measure.Contender{
			{Name: "default", Run: leave(0)},
			{Name: "poll-max-1m", Run: leave(time.Minute)},
		},
		Targets: []measure.Target{
			{Name: "tail-idle", Ours: "default", Limit: 0.2, Metric: PerSecond, Lower: true, AtLeast: 1},
			{Name: "tail-idle", Ours: "poll-max-1m", Limit: 0.2, Metric: PerSecond, Lower: true, AtLeast: 1},
		},
	}
}

// Idle processes slow down first, and then are watched for long, since some of what they do comes
// once in five seconds.
const (
	idleSettles = 3 * time.Second
	idleWindow  = 20 * time.Second
	// tailIdleWindow has all that comes once in a minute.
	tailIdleWindow = time.Minute
)

func idle(ctx context.Context, stage *measure.Stage, start func() (stop func() error, err error)) error {
	if err := fillOurs(ctx, stage.Setup, 0); err != nil {
		return err
	}
	stop, err := start()
	if err != nil {
		return err
	}
	return watchIdle(ctx, stage, idleWindow, stop)
}

// watchIdle counts statements.
func watchIdle(ctx context.Context, stage *measure.Stage, window time.Duration, stop func() error) error {
	<-time.After(idleSettles)
	if err := stage.Start(ctx); err != nil {
		return err
	}
	window = time.Duration(stage.Scale(int(window), int(window/2)))
	before := stage.Wire.Statements()
	<-time.After(window)
	stage.Record(PerSecond, float64(stage.Wire.Statements()-before)/window.Seconds())
	return stop()
}

func idleWorker(ctx context.Context, stage *measure.Stage) (stop func() error, err error) {
	store, err := inboxstore.New(postbox.Database{DB: stage.DB, Dialect: postbox.PostgreSQL}, inboxstore.Config{}, nil)
	if err != nil {
		return nil, err
	}
	subscriber, err := queue.NewSubscriber(store, queue.Config{}, nil)
	if err != nil {
		return nil, err
	}
	var messages <-chan *message.Message
	if messages, err = subscriber.Subscribe(ctx, "queue"); err != nil {
		return nil, err
	}
	go func() {
		for msg := range messages {
			msg.Ack()
		}
	}()
	return func() error { return errors.Join(subscriber.Close(), store.Close()) }, nil
}
