package forwarder

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/meter"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// relay is the handler of the outbox's spool: it publishes.
type relay struct {
	publisher message.Publisher
	classify  func(error) postbox.ErrorClass
	circuits  *circuit.Circuits
	reload    func(ctx context.Context, m *spool.Message) (found bool, err error)
	meter     *meter.Spool
	logger    watermill.LoggerAdapter
}

// Excluded lists the topics that have an outage.
func (r *relay) Excluded() []string { return r.circuits.Excluded() }

// Handle publishes a batch of one topic in one call. If that fails, some messages may have gone out
// and others not: they are published again one by one, so that each gets an outcome of its own.
func (r *relay) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	topic := batch[0].Topic
	call, allowed := r.circuits.Begin(topic)
	defer r.circuits.End(topic, call)
	switch {
	case !allowed:
		return postponed(outcomes)
	case len(batch) == 1:
		outcomes[0] = r.one(ctx, call, batch[0])
		return outcomes
	case call.Probe:
		if outcomes[0] = r.one(ctx, call, batch[0]); outcomes[0].Verdict != spool.Done {
			postponed(outcomes[1:])
		} else {
			copy(outcomes[1:], r.Handle(ctx, batch[1:]))
		}
		return outcomes
	}
	err := r.publish(ctx, topic, batch)
	switch {
	case err == nil:
		r.succeeded(topic, call, batch)
		return outcomes // all done
	case ctx.Err() != nil: // cancelled by us, at the end of a close
		return postponed(outcomes)
	case r.classify(err) == postbox.Outage:
		r.outage(batch, call, err)
		return postponed(outcomes)
	}
	return r.oneByOne(ctx, batch, outcomes)
}

// oneByOne publishes until it meets an outage. If a message has not got through, the later ones of
// its key are held back. That includes later ones of a message that is to become a dead letter:
// until that is written, another process may have to publish it, and first.
func (r *relay) oneByOne(ctx context.Context, batch []*spool.Message, outcomes []spool.Outcome) []spool.Outcome {
	held := spool.ClosedKeys{}
	for i, m := range batch {
		if held.Has(m) {
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
			continue
		}
		outcomes[i] = r.again(ctx, m)
		if outcomes[i].Verdict == spool.Postpone || r.circuits.Open(m.Topic) {
			postponed(outcomes[i+1:])
			return outcomes
		}
		if outcomes[i].Verdict != spool.Done {
			held.Close(m)
		}
	}
	return outcomes
}

// again publishes a message that the publisher has already had in a batch. A decorator that
// encrypts it, for example, may have changed it, so it is read again. If the message is gone,
// another process that now has its lane has settled it.
func (r *relay) again(ctx context.Context, m *spool.Message) spool.Outcome {
	switch found, err := r.reload(ctx, m); {
	case err != nil:
		return spool.Outcome{Verdict: spool.Postpone, Err: err}
	case !found:
		return spool.Outcome{Verdict: spool.Done}
	}
	return r.one(ctx, r.circuits.Again(), m)
}

// one publishes one message.
func (r *relay) one(ctx context.Context, call circuit.Call, m *spool.Message) spool.Outcome {
	err := r.publish(ctx, m.Topic, []*spool.Message{m})
	switch {
	case err == nil:
		r.succeeded(m.Topic, call, []*spool.Message{m})
		return spool.Outcome{Verdict: spool.Done}
	case ctx.Err() != nil: // cancelled by us, at the end of a close
		return spool.Outcome{Verdict: spool.Postpone, Err: err}
	}
	failed := drain.OutcomeOf(fmt.Errorf("publish to topic %.300q: %w", m.Topic, err))
	switch r.classify(err) {
	case postbox.Outage:
		if wait := r.outage([]*spool.Message{m}, call, err); wait > 0 {
			return spool.Outcome{Verdict: spool.Wait, Err: failed.Err, After: wait}
		}
		return spool.Outcome{Verdict: spool.Postpone, Err: err}
	case postbox.MessageFault:
		r.notTaken(m, failed.Err, true)
		return failed
	default:
		return r.unknown(call, m, failed)
	}
}

// succeeded records that messages got through.
func (r *relay) succeeded(topic string, call circuit.Call, batch []*spool.Message) {
	if r.circuits.Succeeded(topic, call, batch) {
		r.logger.Info("Postbox publishes to a topic again", watermill.LogFields{"topic": topic})
	}
}

// unknown decides whether the message or the broker is at fault: see [circuit.Circuits.Failed].
func (r *relay) unknown(call circuit.Call, m *spool.Message, failed spool.Outcome) spool.Outcome {
	blame := r.circuits.Failed(m, call, failed.After)
	if blame.Opened {
		r.logger.Error("Postbox pauses a topic: different messages failed one after the other, so it treats this as an outage",
			failed.Err, watermill.LogFields{"topic": m.Topic, "message_uuid": m.MessageID})
	}
	if blame.Lasting {
		r.logger.Error("Postbox has published nothing to a topic for a while, and goes on trying: each call failed, with an error that no classifier knows",
			failed.Err, watermill.LogFields{"topic": m.Topic, "message_uuid": m.MessageID, "attempts": m.Attempts})
	}
	r.notTaken(m, failed.Err, blame.Counts)
	if blame.Counts {
		return failed
	}
	return spool.Outcome{Verdict: spool.Wait, Err: failed.Err, After: blame.After}
}

// notTaken logs that the broker did not take a message, and whether that is an attempt. None is
// counted as long as there is no sign that it works: then the log has enough from the circuit.
func (r *relay) notTaken(m *spool.Message, err error, counts bool) {
	log := r.logger.Debug
	if counts {
		log = r.logger.Info
	}
	log("Postbox could not publish a message: "+err.Error(), watermill.LogFields{
		"topic": m.Topic, "message_uuid": m.MessageID, "attempts": m.Attempts, "counted": counts,
	})
}

// outage opens the circuit, and returns how long a message that was a probe waits. The log names
// the message, or the first of a batch: if the same message opens the circuit again and again, the
// message is to blame and not the broker, and an operator can make it a dead letter.
func (r *relay) outage(batch []*spool.Message, call circuit.Call, err error) (wait time.Duration) {
	topic := batch[0].Topic
	fields := watermill.LogFields{"topic": topic, "message_uuid": batch[0].MessageID, "messages": len(batch)}
	first, wait := r.circuits.Away(topic, call)
	if first {
		r.logger.Error("Postbox cannot reach the broker and goes on trying", err, fields)
	} else {
		r.logger.Debug("Postbox still cannot reach the broker: "+err.Error(), fields)
	}
	return wait
}

func postponed(outcomes []spool.Outcome) []spool.Outcome {
	for i := range outcomes {
		outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
	}
	return outcomes
}

// publish hands messages to the broker's publisher, unless the forwarder has stopped waiting for
// it. A panic is an error like any other.
func (r *relay) publish(ctx context.Context, topic string, batch []*spool.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	messages := make([]*message.Message, len(batch))
	for i, m := range batch {
		// The outbox has waited. A store behind the broker must not wait again.
		delete(m.Metadata, delay.DelayedForKey)
		delete(m.Metadata, delay.DelayedUntilKey)
		messages[i] = message.NewMessage(m.MessageID, m.Payload)
		messages[i].Metadata = m.Metadata
		messages[i].SetContext(ctx)
	}
	started := r.meter.Now()
	err := spool.Recovered(func() error { return r.publisher.Publish(topic, messages...) })
	r.meter.Called(topic, len(messages), r.meter.Now()-started, err == nil)
	return err
}
