package inboxstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// queue is a queue being worked off by this process: what single messages and batches have in common.
type queue struct {
	name     string
	store    *Store
	config   QueueConfig
	circuits *spool.Circuits
	drainer  *spool.Drainer
	logger   watermill.LoggerAdapter
	telling  sync.WaitGroup  // calls of OnDead
	live     context.Context //nolint:containedctx // for OnDead: that of run without its end, and without a transaction
}

// newQueue returns a queue, which drain completes.
func newQueue(store *Store, name string, config QueueConfig, logger watermill.LoggerAdapter) *queue {
	return &queue{name: name, store: store, config: config, logger: logger.With(watermill.LogFields{"queue": name})}
}

// drain gives the queue the handler of its messages. Nothing happens until run.
func (q *queue) drain(handler spool.Handler, settings spool.Config) {
	settings.Buried = q.buried
	q.drainer = spool.NewDrainer(q.store.db, q.store.queue(q.name), handler, settings, q.logger)
	q.circuits = spool.NewCircuits(spool.CircuitConfig{
		FailuresInRow: 1, ProbeMin: q.config.ProbeMin, ProbeMax: q.config.ProbeMax,
	}, q.drainer.Rescan)
}

// run works the queue off until ctx ends, and stops cleanly.
func (q *queue) run(ctx context.Context) error {
	q.store.clean()
	q.live = context.WithoutCancel(ctx)
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	if q.config.ListenDSN != "" {
		beside.Go(func() { q.drainer.Listen(ctx, q.config.ListenDSN) })
	}
	err := q.drainer.Run(ctx)
	cancel()
	beside.Wait()
	q.circuits.Stop()
	q.telling.Wait()
	if err != nil {
		return fmt.Errorf("queue %q: %w", q.name, err)
	}
	return nil
}

// excluded lists the queue's one topic while it has an outage.
func (q *queue) excluded() []string { return q.circuits.Excluded() }

// message makes what a handler gets.
func (q *queue) message(ctx context.Context, stored *spool.Message) *message.Message {
	msg := message.NewMessage(stored.MessageID, stored.Payload)
	msg.Metadata = maps.Clone(stored.Metadata) // handlers may change it, and the message may be handed out again
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.SetContext(ctx)
	return msg
}

// outcome turns what a handler returned, or what went wrong around it, into the end of the message's turn.
func (q *queue) outcome(ctx context.Context, stored *spool.Message, err error) spool.Outcome {
	if outcome, faultless := q.faultless(ctx, err); faultless {
		return outcome
	}
	q.circuits.Reached(q.name)
	var ofHandler *HandlerError
	errors.As(err, &ofHandler) // or it would have been an outage
	err = ofHandler.Err
	err = q.config.Rule(RuleParams{
		Queue: q.name, Message: q.message(ctx, stored), Err: err, Attempt: stored.Attempts + 1,
	})
	return spool.OutcomeOf(err)
}

// faultless recognises an error that is no message's fault: all that it befell come again, and no attempt counts.
func (q *queue) faultless(ctx context.Context, err error) (outcome spool.Outcome, yes bool) {
	switch {
	case errors.Is(err, spool.ErrLost): // the handler has succeeded, so an outage is over
		q.circuits.Reached(q.name)
		return spool.Outcome{Verdict: spool.Postpone, Err: err}, true
	case ctx.Err() != nil || errors.Is(err, errStopping):
		return spool.Outcome{Verdict: spool.Postpone, Err: err}, true
	default:
		return q.outageOf(err)
	}
}

// outageOf lets the queue wait where an error is nobody's fault: one of the database, or of what the handler needs.
func (q *queue) outageOf(err error) (outcome spool.Outcome, outage bool) {
	var ofHandler *HandlerError
	var ofDatabase outageError
	if errors.As(err, &ofHandler) {
		err = ofHandler.Err
		if !errors.As(err, &ofDatabase) && dialect.Classify(err) != dialect.Unavailable && q.config.Classify(err) != postbox.Outage {
			return spool.Outcome{}, false
		}
	}
	if q.circuits.Trip(q.name) {
		q.logger.Error("Postbox pauses a queue: what its handler needs is away", err, nil)
	}
	return spool.Outcome{Verdict: spool.Postpone, Err: err}, true
}

// errStopping ends a delivery that nobody takes any more.
var errStopping = errors.New("the subscription ends")

// fill gives all messages of a batch the same outcome.
func fill(outcomes []spool.Outcome, outcome spool.Outcome) {
	for i := range outcomes {
		outcomes[i] = outcome
	}
}
