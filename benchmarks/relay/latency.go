package relay

import (
	"context"
	"database/sql"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// oneByOne is how the messages of [Latency] come.
var oneByOne = pace{perSecond: 100, clients: 1}

// Latency commits messages one by one and takes the time until each is published.
func Latency() measure.Scenario {
	return measure.Scenario{
		Name:    "relay-latency",
		About:   "100 messages a second, after 100 that are not timed: from the commit to the call of the publisher, in one process, default settings",
		Picture: P50,
		Contenders: []measure.Contender{
			{Name: "ours", Run: oursLatency},
			{Name: "watermill", Run: stockLatency},
			{Name: "by-hand", Run: func(ctx context.Context, stage *measure.Stage) error {
				return pacedByHand(ctx, stage, stage.DB, byHandPostgres, paced{seconds: latencySeconds(stage), pace: oneByOne, before: warmUp})
			}},
		},
		Targets: []measure.Target{
			{Name: "relay-latency", Ours: "ours", Limit: 2, Metric: P50, Lower: true, AtLeast: 1},
			{Name: "relay-latency", Ours: "ours", Limit: 1.5, Metric: P99, Lower: true, AtLeast: 1},
			{Name: "relay-latency", Ours: "ours", Other: "watermill", Metric: P50, Lower: true, AtLeast: 100},
		},
	}
}

func latencySeconds(stage *measure.Stage) int { return stage.Scale(5, 2) }

func oursLatency(ctx context.Context, stage *measure.Stage) error {
	return oursPaced(ctx, stage, stage.DB, postbox.PostgreSQL, paced{seconds: latencySeconds(stage), pace: oneByOne, before: warmUp})
}

// paced is how messages come, for how many seconds, and how many come before them and are not
// timed.
type paced struct {
	seconds, before int
	pace
}

func (p paced) stopwatch() *stopwatch { return newStopwatch(p.seconds * p.perSecond) }

// oursPaced commits messages at a pace into an outbox that is empty at first, and takes the time
// until each is published by a forwarder with default settings.
func oursPaced(ctx context.Context, stage *measure.Stage, db *sql.DB, dialect postbox.Dialect, at paced) error {
	if err := postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: dialect}); err != nil {
		return err
	}
	watch := at.stopwatch()
	fwd, ended, err := startOn(ctx, postbox.Database{DB: db, Dialect: dialect}, watch, forwarder.Config{})
	if err != nil {
		return err
	}
	<-fwd.Running()
	publisher, err := forwarder.NewPublisher(postbox.Database{DB: db, Dialect: dialect}, forwarder.PublisherConfig{}, nil)
	if err != nil {
		return err
	}
	err = watch.runWarm(ctx, stage, at.pace, at.before, func(ctx context.Context, msg *message.Message, committed func()) error {
		return postbox.InTx(ctx, db, func(ctx context.Context, _ *sql.Tx) error {
			postbox.AfterCommit(ctx, committed)
			msg.SetContext(ctx)
			return publisher.Publish(load.Topic, msg)
		})
	})
	return errors.Join(err, publisher.Close(), fwd.Close(), <-ended)
}

func stockLatency(ctx context.Context, stage *measure.Stage) error {
	publisher, err := newStockPublisher(stage.Setup, stockPostgres(0).schema)
	if err != nil {
		return err
	}
	if err := publisher.Publish(load.Topic, load.Messages(0, 1)...); err != nil { // makes the tables
		return err
	}
	watch := paced{seconds: latencySeconds(stage), pace: oneByOne}.stopwatch()
	fwd, ended, err := startStock(ctx, stage.DB, stockPostgres(0), watch)
	if err != nil {
		return err
	}
	<-fwd.Running()
	err = watch.runWarm(ctx, stage, oneByOne, warmUp, func(ctx context.Context, msg *message.Message, committed func()) error {
		return publishStock(ctx, stage.DB, msg, committed)
	})
	return errors.Join(err, fwd.Close(), <-ended)
}

func publishStock(ctx context.Context, db *sql.DB, msg *message.Message, committed func()) error {
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
	committed()
	return nil
}
