package crashpoints_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
)

const (
	// pollMin keeps reads in vain rare: what waits for its next attempt is found by the next read.
	pollMin = 3 * time.Millisecond
	// pollMax is also how soon a database that was away is tried again.
	pollMax = 10 * time.Millisecond
)

// retry lets what has failed be due at once.
var retry = postbox.RetryProfile{Attempts: attempts, Base: time.Microsecond, Cap: time.Microsecond, Jitter: -1}

// forward works off the outbox.
func (p *process) forward(ctx context.Context, config forwarder.Config) error {
	f, err := p.forwarder(p.w.database.On(p.db), config)
	if err != nil {
		return err
	}
	return p.until(ctx, f.Run, p.w.drained(outboxName))
}

// forwarder returns a forwarder that waits for nothing.
func (p *process) forwarder(database postbox.Database, config forwarder.Config) (*forwarder.Forwarder, error) {
	config.Concurrency = 2
	config.PollMin, config.PollMax, config.ProbeMin, config.ProbeMax = pollMin, pollMax, pollMin, pollMax
	config.Retry, config.DeadLetterRetention = retry, -1
	config.Classify = func(err error) postbox.ErrorClass {
		if errors.Is(err, errRefused) {
			return postbox.MessageFault
		}
		return postbox.Unclassified
	}
	return forwarder.New(database, broker{p}, config, nil)
}

// broker is the broker as a process reaches it.
type broker struct{ p *process }

// outage is the topic of which the broker has an outage at first, of so many calls.
const (
	outage      = "outage"
	outageCalls = 3
)

// Publish publishes all of the messages or none.
func (b broker) Publish(topic string, messages ...*message.Message) error {
	return b.p.call("publish to "+topic, func(w *world) error {
		if topic == outage && w.refused[topic] < outageCalls {
			w.refused[topic]++
			return io.ErrUnexpectedEOF
		}
		for _, msg := range messages {
			if err := w.refusal(msg.UUID); err != nil {
				return err
			}
		}
		for _, msg := range messages {
			w.published = append(w.published, sent{topic, msg.UUID, msg.Metadata.Get(postbox.MetadataOrderingKey)})
		}
		return nil
	})
}

// Close does nothing.
func (b broker) Close() error { return nil }

// publish returns what writes messages to the outbox.
func publish(topic string, messages ...*message.Message) func(ctx context.Context, p *process) error {
	return func(ctx context.Context, p *process) error {
		outbox, err := p.outbox()
		if err != nil {
			return err
		}
		defer func() { _ = outbox.Close() }()
		return postbox.InTx(ctx, p.db, func(ctx context.Context, _ *sql.Tx) error {
			for _, msg := range messages {
				msg := msg.Copy()
				msg.SetContext(ctx)
				if err := outbox.Publish(topic, msg); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// forwardWith returns the life of a forwarder.
func forwardWith(config forwarder.Config) func(ctx context.Context, p *process) error {
	return func(ctx context.Context, p *process) error { return p.forward(ctx, config) }
}

// Also covers G3, F1 and F5.
func TestCrash_G2_while_forwarding(t *testing.T) {
	t.Parallel()
	good := publish("orders", newMessage("a1", "a"), newMessage("b1", "b"), newMessage("a2", "a"), newMessage("n1", ""), newMessage("a3", "a"))
	check := func(c *check) {
		c.published("orders", "a1", "b1", "a2", "n1", "a3")
		c.pending(outboxName)
		c.dead()
		c.require().Zero(c.count(countFailures))
	}
	each(t,
		flow{name: "forward", least: 15, prepare: good, life: forwardWith(forwarder.Config{}), check: check},
		flow{name: "forward in batches", least: 12, prepare: good, life: forwardWith(forwarder.Config{BatchSize: 3}), check: check},
	)
}

// Also covers G3, F5 and F11.
func TestCrash_G2_while_retrying_and_burying(t *testing.T) {
	t.Parallel()
	each(t,
		flow{
			name: "retry", least: 15, life: forwardWith(forwarder.Config{}),
			prepare: publish("orders", newMessage("a1", "a"), newMessage(flaky, "a"), newMessage("a3", "a"), newMessage("b1", "b"), newMessage("n1", "")),
			check: func(c *check) {
				c.published("orders", "a1", flaky, "a3", "b1", "n1")
				c.pending(outboxName)
				c.dead()
				if !c.struck {
					c.require().Equal(1, c.count(countFailures))
				}
			},
		},
		flow{
			name: "bury", least: 20, life: forwardWith(forwarder.Config{}),
			prepare: publish("orders", newMessage(bad, "a"), newMessage("a2", "a"), newMessage(fatal, "b"), newMessage("b2", "b"), newMessage("n1", "")),
			check: func(c *check) {
				c.published("orders", "a2", "b2", "n1")
				c.pending(outboxName)
				c.dead(bad, fatal)
			},
		},
	)
}

// No attempt counts, whatever happens on the way.
// Also covers F5 and F13.
func TestCrash_G7_in_an_outage(t *testing.T) {
	t.Parallel()
	each(t, flow{
		name: "outage", least: 15, life: forwardWith(forwarder.Config{}),
		prepare: publish(outage, newMessage("a1", "a"), newMessage("b1", "b"), newMessage("a2", "a")),
		check: func(c *check) {
			c.published(outage, "a1", "b1", "a2")
			c.pending(outboxName)
			c.dead()
			c.require().Zero(c.count(mostAttempts))
		},
	})
}
