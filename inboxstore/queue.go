package inboxstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

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
	// conflicts: it has been logged that there are some.
	conflicts atomic.Bool
	telling   sync.WaitGroup  // calls of OnDead
	live      context.Context //nolint:containedctx // for OnDead: that of run without its end, and without a transaction
}

// newQueue returns a queue, which drain completes.
func newQueue(store *Store, name string, config QueueConfig, logger watermill.LoggerAdapter) *queue {
	return &queue{name: name, store: store, config: config, logger: logger.With(watermill.LogFields{"queue": name})}
}

// drain gives the queue the handler of its messages. Nothing happens until run.
func (q *queue) drain(handler spool.Handler, settings spool.Config) {
	settings.Buried = q.buried
	if q.config.Transactional {
		settings.Begin = q.store.slots.take
	}
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
	q.reached()
	var lost lostError
	switch {
	case q.store.isConflict(err):
		q.tellOfConflict(err)
		return spool.Outcome{Verdict: spool.Again, Err: err}
	case errors.As(err, &lost):
		if q.store.doubts.first(spool.MessageSubject(stored.Ref.ID)) {
			q.logger.Info("Postbox handles a message again: its handler's connection was lost, and the database is there", watermill.LogFields{
				"message_uuid": stored.MessageID, "err": err.Error(),
			})
			return spool.Outcome{Verdict: spool.Again, Err: err}
		}
		err = lost.error
	}
	var ofHandler *HandlerError
	if errors.As(err, &ofHandler) {
		err = ofHandler.Err
	}
	err = q.config.Rule(RuleParams{
		Queue: q.name, Message: q.message(ctx, stored), Err: err, Attempt: stored.Attempts + 1,
	})
	return spool.OutcomeOf(err)
}

// reached notes that a handler has ended, well or not, or that the database has answered: there is no outage.
func (q *queue) reached() { q.circuits.Reached(q.name) }

// tellOfConflict logs a conflict, unless one was logged and no message has been done since.
func (q *queue) tellOfConflict(err error) {
	if !q.conflicts.Swap(true) {
		q.logger.Info("Postbox handles messages again that conflict with other transactions", watermill.LogFields{"err": err.Error()})
	}
}

// succeeded notes that a handler has succeeded.
func (q *queue) succeeded() {
	q.reached()
	q.conflicts.Store(false)
}

// faultless recognises an error that is no message's fault and concerns all that it befell: they come again, and no attempt counts.
func (q *queue) faultless(ctx context.Context, err error) (outcome spool.Outcome, yes bool) {
	switch {
	case errors.Is(err, spool.ErrLost), errors.Is(err, spool.ErrRowLocked): // the handler has succeeded, so an outage is over
		q.reached()
		return spool.Outcome{Verdict: spool.Again, Err: err}, true
	case ctx.Err() != nil || errors.Is(err, errStopping):
		return spool.Outcome{Verdict: spool.Postpone, Err: err}, true
	default:
		return q.outageOf(err)
	}
}

// outageOf lets the queue wait where an error is nobody's fault: one of the database, or of what the handler needs.
func (q *queue) outageOf(err error) (outcome spool.Outcome, outage bool) {
	if !q.isOutage(err) {
		return spool.Outcome{}, false
	}
	if q.circuits.Trip(q.name) {
		q.logger.Error("Postbox pauses a queue: what its handler needs is away", err, nil)
	}
	return spool.Outcome{Verdict: spool.Postpone, Err: err}, true
}

func (q *queue) isOutage(err error) bool {
	var ofHandler *HandlerError
	var ofDatabase outageError
	var lost lostError
	switch {
	case q.store.isConflict(err), errors.As(err, &lost):
		return false
	case !errors.As(err, &ofHandler):
		return true
	case errors.As(err, &ofDatabase):
		return true
	case errors.Is(err, ErrTransactionLost): // the database has been asked, whatever its errors look like
		return false
	case q.store.statements.Kind.Classify(ofHandler.Err) == dialect.Unavailable:
		return true
	case isOwnContext(ofHandler.Err): // whatever it looks like to a classifier of network errors
		return false
	default:
		return q.config.Classify(ofHandler.Err) == postbox.Outage
	}
}

// errStopping ends a delivery that nobody takes any more.
var errStopping = errors.New("the subscription ends")

// fill gives all messages of a batch the same outcome.
func fill(outcomes []spool.Outcome, outcome spool.Outcome) {
	for i := range outcomes {
		outcomes[i] = outcome
	}
}
