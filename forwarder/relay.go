package forwarder

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// relay is the handler of the outbox's spool: it publishes.
type relay struct {
	publisher message.Publisher
	classify  postbox.Classifier
	circuits  *spool.Circuits
	logger    watermill.LoggerAdapter
}

// Excluded lists the topics that have an outage.
func (r *relay) Excluded() []string { return r.circuits.Excluded() }

// Handle publishes a batch of one topic in one call. If that fails, some may have gone out and some not: they
// are published one by one, so that each gets an outcome of its own.
func (r *relay) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	topic := batch[0].Topic
	if !r.circuits.Allow(topic) {
		return postponed(outcomes)
	}
	err := r.publish(ctx, topic, batch)
	switch {
	case err == nil:
		r.circuits.Reached(topic)
		return outcomes // all done
	case ctx.Err() != nil: // cancelled by us, at the end of a close
		return postponed(outcomes)
	case len(batch) == 1:
		outcomes[0] = r.outcome(batch[0], err)
		return outcomes
	case r.classify(err) == postbox.Outage:
		r.outage(topic, err)
		return postponed(outcomes)
	}
	return r.oneByOne(ctx, topic, batch, outcomes)
}

func (r *relay) oneByOne(ctx context.Context, topic string, batch []*spool.Message, outcomes []spool.Outcome) []spool.Outcome {
	waiting := map[int64]bool{} // keys of which an earlier message did not get through
	for i, m := range batch {
		if m.HasKey && waiting[m.KeyHash] {
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
			continue
		}
		err := r.publish(ctx, topic, batch[i:i+1])
		if err == nil {
			r.circuits.Reached(topic)
			continue
		}
		if ctx.Err() != nil {
			postponed(outcomes[i:])
			return outcomes
		}
		outcomes[i] = r.outcome(m, err)
		if outcomes[i].Verdict == spool.Postpone {
			postponed(outcomes[i:])
			return outcomes
		}
		waiting[m.KeyHash] = outcomes[i].Verdict == spool.Retry
	}
	return outcomes
}

// outcome tells an outage from a fault of the message.
func (r *relay) outcome(m *spool.Message, err error) spool.Outcome {
	switch r.classify(err) {
	case postbox.Outage:
		r.outage(m.Topic, err)
		return spool.Outcome{Verdict: spool.Postpone, Err: err}
	case postbox.MessageFault:
		r.circuits.Reached(m.Topic) // the broker looked at it
	default:
		if r.circuits.Failed(m.Topic, m.MessageID) {
			r.logger.Error("Postbox takes failures of different messages in a row for an outage", err, watermill.LogFields{"topic": m.Topic})
			return spool.Outcome{Verdict: spool.Postpone, Err: err}
		}
	}
	return spool.OutcomeOf(fmt.Errorf("publish to topic %q: %w", m.Topic, err))
}

func (r *relay) outage(topic string, err error) {
	if r.circuits.Trip(topic) {
		r.logger.Error("Postbox cannot reach the broker and goes on trying", err, watermill.LogFields{"topic": topic})
	}
}

func postponed(outcomes []spool.Outcome) []spool.Outcome {
	for i := range outcomes {
		outcomes[i] = spool.Outcome{Verdict: spool.Postpone}
	}
	return outcomes
}

// publish hands messages to the broker's publisher. A panic is an error like any other.
func (r *relay) publish(ctx context.Context, topic string, batch []*spool.Message) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v\n%s", reason, debug.Stack())
		}
	}()
	messages := make([]*message.Message, len(batch))
	for i, m := range batch {
		// The outbox has waited, and whoever stores the message next shall not wait again.
		delete(m.Metadata, delay.DelayedForKey)
		delete(m.Metadata, delay.DelayedUntilKey)
		messages[i] = message.NewMessage(m.MessageID, m.Payload)
		messages[i].Metadata = m.Metadata
		messages[i].SetContext(ctx)
	}
	return r.publisher.Publish(topic, messages...)
}
