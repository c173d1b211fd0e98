package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// queue is a queue that this process handles. It is the common part of single messages and batches.
type queue struct {
	name     string
	core     *inbox.Core // of the store
	config   Config
	circuits *circuit.Circuits
	drainer  *drain.Drainer
	logger   watermill.LoggerAdapter
	// conflicts is set once a conflict has been logged.
	conflicts atomic.Bool
	telling   telling
	live      context.Context //nolint:containedctx // for OnDead: the context of run without its cancellation, until the close timeout is over
}

// newQueue returns a queue. The caller completes it with drain.
func newQueue(core *inbox.Core, name string, config Config, logger watermill.LoggerAdapter) *queue {
	logger = logger.With(watermill.LogFields{"queue": name})
	config.Classify = spool.Classified(config.Classify, logger)
	return &queue{name: name, core: core, config: config, logger: logger}
}

// drain sets the handler of the queue's messages. The handler is not called before run.
func (q *queue) drain(handler drain.Handler, settings drain.Config) {
	if q.config.Poison.Outbox != nil || q.config.OnDead != nil {
		settings.Buried = q.buried
	}
	settings.Meter = meter.Of(q.core.Metrics, q.core.Spool(q.name).Name(), q.logger)
	settings.Circuits = func() *circuit.Circuits { return q.circuits }
	if q.config.Transactional {
		settings.Begin = q.core.Slots.Take
	}
	q.drainer = drain.New(q.core.DB, q.core.Spool(q.name), measured(handler, settings.Meter), settings, q.logger)
	q.circuits = circuit.New(circuit.Config{
		FailuresInRow: circuit.FailuresInRow, ProbeMin: q.config.ProbeMin, ProbeMax: q.config.ProbeMax,
		Width: q.config.Concurrency, OutageLimit: circuit.OutageLimit, Changed: settings.Meter.Circuit,
	}, q.drainer.Rescan)
}

// health returns the state of the queue in this process.
func (q *queue) health() health.State {
	state := q.drainer.Health()
	state.Name = fmt.Sprintf("queue %.300q", q.name)
	return state
}

// Check returns the error that would end run immediately.
func (q *queue) Check(ctx context.Context) error { return q.named(q.drainer.Check(ctx)) }

// named adds the name of the queue to an error.
func (q *queue) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("queue %.300q: %w", q.name, err)
}

// run processes the queue until ctx ends, and stops cleanly.
func (q *queue) run(ctx context.Context) error {
	q.core.Clean()
	live, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	q.live = live
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { time.AfterFunc(q.core.CloseTimeout, abort) })
	var beside sync.WaitGroup
	if q.config.ListenDSN != "" {
		beside.Go(func() { q.drainer.Listen(ctx, q.config.ListenDSN) })
	}
	err := q.drainer.Run(ctx)
	cancel()
	beside.Wait()
	q.circuits.Stop()
	q.awaitTelling()
	return q.named(err)
}

// excluded lists the queue's one topic during an outage.
func (q *queue) excluded() []string { return q.circuits.Excluded() }

// message returns the message that a handler gets.
func (q *queue) message(ctx context.Context, stored *spool.Message) *message.Message {
	msg := message.NewMessage(stored.MessageID, bytes.Clone(stored.Payload)) // handlers may change payload and metadata, and the message may be handed out again
	msg.Metadata = maps.Clone(stored.Metadata)
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	// An outbox to which a handler passes the message on must not wait again, nor one that gets it
	// as a dead letter.
	spool.Disarm(msg.Metadata)
	msg.SetContext(ctx)
	return msg
}

// outcome translates an error, of the handler or of its surroundings, into the outcome of the
// message.
func (q *queue) outcome(ctx context.Context, call circuit.Call, stored *spool.Message, err error) spool.Outcome {
	if outcome, faultless := q.faultless(ctx, call, []*spool.Message{stored}, err); faultless {
		return outcome
	}
	var refusal inbox.RefusalError
	var doubt inbox.DoubtError
	switch {
	case q.core.IsConflict(err):
		q.reached()
		q.tellOfConflict(err)
		return spool.Outcome{Verdict: spool.Again, Err: err}
	case errors.As(err, &refusal):
		q.reached()
		return spool.Outcome{Verdict: spool.Again, Err: err}
	case !errors.As(err, &doubt):
		q.reached()
	default:
		if outcome, open := q.doubtful(call, stored, doubt); open {
			return outcome
		}
		err = doubt.Err
	}
	var ofHandler *inbox.HandlerError
	if errors.As(err, &ofHandler) {
		err = ofHandler.Err
	}
	failure := Failure{Queue: q.name, Message: q.message(ctx, stored), Err: err, Attempts: stored.Attempts + 1}
	return drain.OutcomeOf(spool.Recovered(func() error { return q.config.MapError(failure) }))
}

// doubtful decides whether an error counts as an attempt if it may also come from an outage. open
// is true if it does not count for now: see [circuit.Circuits.Failed].
func (q *queue) doubtful(call circuit.Call, stored *spool.Message, doubt inbox.DoubtError) (outcome spool.Outcome, open bool) {
	about := watermill.LogFields{"message_uuid": stored.MessageID, "err": doubt.Error()}
	if !doubt.Exhausted {
		q.reached()
		if !q.core.Doubts.First(stored.Subject()) {
			return spool.Outcome{}, false
		}
		q.logger.Info("Postbox handles a message again: its connection was lost, but the database is available", about)
		return spool.Outcome{Verdict: spool.Again, Err: doubt}, true
	}
	blame := q.circuits.Failed(stored, call, 0)
	if blame.Opened {
		q.logger.Error("Postbox pauses a queue: several messages in a row failed because disk or memory is full", doubt,
			watermill.LogFields{"message_uuid": stored.MessageID})
	}
	if blame.Counts {
		return spool.Outcome{}, false
	}
	q.logger.Debug("Postbox counts no attempt: disk or memory may be full, since no other message has succeeded meanwhile", about)
	return spool.Outcome{Verdict: spool.Wait, Err: doubt, After: blame.After}, true
}

// reached records that a handler has ended in a way that proves that there is no outage.
func (q *queue) reached() { q.circuits.Reached(q.name) }

// tellOfConflict logs a conflict, once until the next message is done.
func (q *queue) tellOfConflict(err error) {
	if !q.conflicts.Swap(true) {
		q.logger.Info("Postbox handles messages again because they conflict with other transactions", watermill.LogFields{"err": err.Error()})
	}
}

// succeeded records that a handler has succeeded.
func (q *queue) succeeded(call circuit.Call, done []*spool.Message) {
	q.circuits.Succeeded(q.name, call, done)
	q.conflicts.Store(false)
}

// undecided records that several messages failed together. Next, the caller handles them
// separately, to find the culprit. If the call was the probe of a paused queue, one of the messages
// may become the probe.
func (q *queue) undecided(call circuit.Call, err error) {
	var doubt inbox.DoubtError
	if errors.As(err, &doubt) && doubt.Exhausted {
		q.circuits.End(q.name, call)
		return
	}
	q.reached()
}

// faultless recognises an error that no message caused and that concerns all messages of the call.
// They are handled again, and no attempt counts. A message that was a probe by itself waits, so
// that the next probe is another message. A row that another transaction has locked concerns one
// message, so several are handled again separately.
func (q *queue) faultless(ctx context.Context, call circuit.Call, messages []*spool.Message, err error) (outcome spool.Outcome, yes bool) {
	switch {
	case errors.Is(err, spool.ErrRowLocked) && len(messages) > 1:
		return spool.Outcome{}, false
	case errors.Is(err, spool.ErrLost), errors.Is(err, spool.ErrRowLocked): // the handler has succeeded, so an outage is over
		q.reached()
		return spool.Outcome{Verdict: spool.Again, Err: err}, true
	case ctx.Err() != nil || errors.Is(err, inbox.ErrStopping):
		return spool.Outcome{Verdict: spool.Postpone, Err: err}, true
	}
	away := q.isOutage(err)
	if !away && !q.isDatabase(err) {
		return spool.Outcome{}, false
	}
	first, wait := q.circuits.Away(q.name, call)
	if first {
		q.logger.Error("Postbox pauses a queue: a dependency of its handler is unavailable", err, watermill.LogFields{"message_uuid": messages[0].MessageID})
	}
	if away && len(messages) == 1 && wait > 0 {
		return spool.Outcome{Verdict: spool.Wait, Err: err, After: wait}, true
	}
	return spool.Outcome{Verdict: spool.Postpone, Err: err}, true
}

// isDatabase reports whether only the database caused the error.
func (q *queue) isDatabase(err error) bool {
	var ofHandler *inbox.HandlerError
	var ofDatabase inbox.OutageError
	return !q.isDoubt(err) && (!errors.As(err, &ofHandler) || errors.As(err, &ofDatabase))
}

// isDoubt reports whether an error concerns only the message, or may do so.
func (q *queue) isDoubt(err error) bool {
	var doubt inbox.DoubtError
	var refusal inbox.RefusalError
	return q.core.IsConflict(err) || errors.As(err, &doubt) || errors.As(err, &refusal)
}

// isOutage reports whether the handler's error shows an outage of something other than the
// database.
func (q *queue) isOutage(err error) bool {
	var ofHandler *inbox.HandlerError
	switch {
	case q.isDoubt(err), !errors.As(err, &ofHandler):
		return false
	case errors.Is(err, inbox.ErrTransactionLost): // the database has already been asked, whatever its errors look like
		return false
	case inbox.IsOwnContext(ofHandler.Err): // even if a classifier of network errors would take it for an outage
		return false
	default:
		return q.config.Classify(ofHandler.Err) == postbox.Outage
	}
}
