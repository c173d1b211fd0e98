package relay

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

// longTxSeconds are those that messages come under an open transaction.
const longTxSeconds = 120

// LongTx does what [Steady] does while a transaction that has written to another table stays open.
// Nothing that was deleted since that transaction began can be cleared away.
func LongTx() measure.Scenario {
	return measure.Scenario{
		Name:      "long-tx",
		About:     "800 messages a second for 120 s while an unrelated transaction that has written stays open; by hand for 20 s",
		MaxRounds: 1,
		Picture:   P99,
		Floor:     "by-hand",
		Contenders: []measure.Contender{
			{Name: "ours", Run: whileOpen(oursSteady(longTxSeconds))},
			{Name: "by-hand", Run: whileOpen(func(ctx context.Context, stage *measure.Stage) error {
				return pacedByHand(ctx, stage, stage.DB, byHandPostgres, steadyFor(stage, byHandSeconds))
			})},
		},
		Targets: steadyTargets("long-tx", 10),
	}
}

// The messages that go through before a drain is measured, those of the drain, and those of a quick
// run.
const (
	goThrough      = 1_000_000
	thenDrained    = 100_000
	quickGoThrough = 100_000
	quickDrained   = 50_000
	longTxRounds   = 2
)

// LongTxDrain lets many messages go through, under an open transaction and without one, and then
// measures how fast the same forwarder drains a backlog.
func LongTxDrain() measure.Scenario {
	return measure.Scenario{
		Name: "long-tx-drain",
		About: "drain 100,000 messages after 1,000,000 went through the same forwarder, " +
			"while an unrelated transaction stays open and without it",
		MaxRounds: longTxRounds,
		Floor:     "none-open",
		Contenders: []measure.Contender{
			{Name: "one-open", Run: whileOpen(drainAfterMany)},
			{Name: "none-open", Run: drainAfterMany},
		},
		Targets: []measure.Target{{Name: "long-tx", Ours: "one-open", Other: "none-open", AtLeast: 0.8}},
	}
}

// whileOpen runs while a transaction is open that has an id of its own, in the same database, and
// touches no table of Postbox.
func whileOpen(run measure.Run) measure.Run {
	return func(ctx context.Context, stage *measure.Stage) (err error) {
		db, err := sql.Open("postgres", stage.DSN)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		if _, err := db.ExecContext(ctx, createUnrelated); err != nil {
			return err
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, tx.Rollback()) }()
		if _, err := tx.ExecContext(ctx, insertUnrelated); err != nil {
			return err
		}
		return run(ctx, stage)
	}
}

// drainAfterMany lets messages go through a forwarder as fast as it can, then holds its publisher
// until there is a backlog, and measures how fast the backlog goes.
func drainAfterMany(ctx context.Context, stage *measure.Stage) error {
	if err := fillOurs(ctx, stage.Setup, 0); err != nil {
		return err
	}
	through, backlog := stage.Scale(goThrough, quickGoThrough), stage.Scale(thenDrained, quickDrained)
	to := newGate(through, backlog)
	fwd, ended, err := startOurs(ctx, stage.DB, to, forwarder.Config{})
	if err != nil {
		return err
	}
	err = to.measure(ctx, stage, through, backlog)
	return errors.Join(err, fwd.Close(), <-ended)
}

// gate is a publisher that lets so many messages pass at once, and the others when it is opened.
type gate struct {
	free   int64
	seen   atomic.Int64
	opened chan struct{}
	// before and behind count what passed.
	before, behind *sink
}

func newGate(before, behind int) *gate {
	return &gate{free: int64(before), opened: make(chan struct{}), before: newSink(before, 0), behind: newSink(behind, 0)}
}

// Publish waits at the gate.
func (g *gate) Publish(topic string, messages ...*message.Message) error {
	if g.seen.Add(int64(len(messages))) <= g.free {
		return g.before.Publish(topic, messages...)
	}
	<-g.opened
	return g.behind.Publish(topic, messages...)
}

// Close does nothing.
func (g *gate) Close() error { return nil }

// measure lets the first messages through and takes the time of the others.
func (g *gate) measure(ctx context.Context, stage *measure.Stage, through, backlog int) error {
	err := g.fill(ctx, stage, through, backlog)
	close(g.opened) // also after an error, since a forwarder that closes waits for its calls
	if err != nil {
		return err
	}
	if err := g.behind.wait(ctx); err != nil {
		return err
	}
	return stage.Stop(backlog)
}

// fill writes the messages that pass at once, waits until they have, writes those that do not, and
// starts the clock.
func (g *gate) fill(ctx context.Context, stage *measure.Stage, through, backlog int) error {
	if err := fillOurs(ctx, stage.Setup, through); err != nil {
		return err
	}
	if err := g.before.wait(ctx); err != nil {
		return err
	}
	if err := fillOurs(ctx, stage.Setup, backlog); err != nil {
		return err
	}
	return stage.Start(ctx)
}
