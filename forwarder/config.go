package forwarder

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Config says how an outbox is drained. The zero value has all defaults.
type Config struct {
	// Outbox is the name of the outbox. Defaults to "outbox".
	Outbox string

	// Concurrency is the number of calls to the broker's publisher at a time, at most 10,000.
	// Defaults to 64. A call that has not returned after 30 s no longer counts, so more and more
	// calls can hang at the same time. If your publisher must not be called concurrently, set
	// Concurrency to 1 and bound its calls below 30 s.
	Concurrency int
	// BatchSize is the largest number of messages of one topic in one such call. A publisher that
	// sends its messages one after the other, as Watermill's for Kafka does, is faster with 1 and
	// concurrency. A publisher with a fixed cost for each call, as those of kafkabroker and
	// amqpbroker, is faster with 100. Messages that exceed 4 MiB together go in several calls. When
	// a call fails, its messages are published again one by one. Defaults to 1.
	BatchSize int
	// Tail, if set, reads new messages from the log of the database, on PostgreSQL, beside polling:
	// package pgtail has one. Up to one page more is held in memory. Experimental. Defaults to
	// polling alone.
	Tail Tail

	// Destination says in words what the messages are published to, such as the name of the broker.
	// All forwarders of an outbox should publish to the same: a process that finds another one with
	// another Destination says so in its log, and so do postbox doctor and the dashboard. Defaults
	// to the program and the type of the publisher.
	Destination string

	// Retry says how often and with which pauses a failed message is published again. Defaults to
	// 10 attempts with full jitter: the last one comes after two minutes on average.
	Retry postbox.RetryProfile
	// Limits bound how fast all forwarders of this outbox together publish: the outbox as a whole,
	// or single topics. A message that has to wait costs no attempt. Give all forwarders the same.
	// Operators can change the limit of the whole outbox: see admin.ChangeSettings. Default to
	// none.
	Limits postbox.Limits
	// Classify tells outages from faults of a message; the helpers for Kafka and AMQP have one
	// each. Errors that it does not know go to [postbox.ClassifyNetwork]. Defaults to that alone.
	Classify func(error) postbox.ErrorClass
	// DeadLetterRetention is how long dead letters and failures are kept. Negative keeps them for
	// ever. Defaults to 30 days.
	DeadLetterRetention time.Duration

	// Sources are tables of other outboxes to take messages from: see package sources.
	Sources []Source

	// Router, if set, runs the forwarder, which starts and stops with it. If the forwarder cannot
	// run, for example because its tables are missing, Run of the router returns the error. If the
	// forwarder cannot go on later, it logs the error and closes the router.
	Router *message.Router
	// Name is the name of the forwarder in its router and in logs. Defaults to "postbox_forwarder_"
	// and the outbox.
	Name string

	postbox.Tuning
}

func (c *Config) setDefaults() {
	c.Outbox = cmp.Or(c.Outbox, defaultOutbox)
	c.BatchSize = cmp.Or(c.BatchSize, defaultBatchSize)
	c.FailuresInRow = cmp.Or(c.FailuresInRow, defaultFailuresInRow)
	c.OutageLimit = cmp.Or(c.OutageLimit, defaultOutageLimit)
	c.DeadLetterRetention = cmp.Or(c.DeadLetterRetention, defaultRetention)
	c.Name = cmp.Or(c.Name, "postbox_forwarder_"+c.Outbox)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, defaultCloseTimeout)
	drain.SetDefaults(&c.Tuning)
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Retry = retries.WithDefaults(c.Retry, defaultMaxAttempts)
	c.Classify = withNetwork(c.Classify)
}

// withNetwork asks [postbox.ClassifyNetwork] about errors that the user's function does not know.
func withNetwork(classify func(error) postbox.ErrorClass) func(error) postbox.ErrorClass {
	if classify == nil {
		return postbox.ClassifyNetwork
	}
	return func(err error) postbox.ErrorClass {
		return cmp.Or(classify(err), postbox.ClassifyNetwork(err))
	}
}

// validate returns all that is wrong with the configuration for a database of that kind.
func (c Config) validate(kind postbox.Dialect) error {
	problems := []error{
		validateOutbox(c.Outbox), drain.Valid(c.Tuning, c.Concurrency, c.Retry, dialect.Kind(kind)),
		drain.Positive("BatchSize", c.BatchSize), drain.Positive("FailuresInRow", c.FailuresInRow),
		drain.Positive("OutageLimit", c.OutageLimit), drain.Positive("CloseTimeout", c.CloseTimeout), spool.ValidLimits(c.Limits),
	}
	if c.Tail != nil && !dialect.Kind(kind).Can().Tails {
		problems = append(problems, fmt.Errorf("Tail: the log of %s cannot be read: leave Tail empty, since only that of PostgreSQL can", kind))
	}
	for i, source := range c.Sources {
		if given.Nil(source) {
			problems = append(problems, fmt.Errorf("Sources[%d]: is nil", i))
		} else if err := source.Check(kind); err != nil {
			problems = append(problems, fmt.Errorf("Sources[%d]: %w", i, err))
		}
	}
	return errors.Join(problems...)
}
