package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Defaults of settings in [Config], where they are explained.
const (
	defaultConcurrency = 16
	defaultMaxAttempts = 15
)

// Failure is what [Config.MapError] and [Config.OnDead] get of a message that failed.
type Failure struct {
	Queue   string
	Message *message.Message
	// Err is the error that the handler returned, or a panic with its stack.
	Err error
	// Attempts is the number of attempts that have failed, this one included.
	Attempts int
}

// Poison says where dead letters are published, with the metadata of Watermill's PoisonQueue.
type Poison struct {
	// Outbox must be the publisher of an outbox, because it writes in the transaction that buries
	// the message. While it rejects a dead letter, the key of that message waits. After a
	// [postbox.Permanent] error the message is a dead letter without being published, and the log
	// says so; a publisher of your own must return that error before it executes a statement, since
	// PostgreSQL executes nothing after one that failed.
	Outbox message.Publisher
	Topic  string
}

// Config says how a queue is processed. Operators can change some settings for all processes: see
// admin.ChangeSettings.
type Config struct {
	// Unordered handles each message by itself, whatever its key. By default messages with the same
	// ordering key are handled one at a time, oldest first, across all processes. Different keys
	// run concurrently, and so do messages without a key.
	Unordered bool
	// Park leaves a message in the queue after its last attempt or a permanent error. Its key waits
	// until an operator decides: admin.Resume gives the message all its attempts again, and
	// admin.Bury makes it a dead letter. By default the message is a dead letter, and its key
	// continues.
	Park bool

	// Concurrency is the maximum number of handlers that run at a time in this process, at most
	// 10,000. Defaults to 16, for batches to 1.
	Concurrency int
	// Transactional gives the handler a transaction, which [postbox.TxFromContext] finds in the
	// message's context. Three things commit together: the handler's writes in it, the messages
	// that the handler publishes through an outbox, and the end of the message. So the message has
	// its effect once. Without Transactional a message is handled at least once, and TxFromContext
	// finds nothing.
	//
	// The pool needs a connection for each running handler, and one more to renew the lease while
	// all handlers run. With fewer connections the result is still correct: a message whose lease
	// was lost is rolled back and handled again. Where database/sql has another pool behind it, set
	// SetMaxOpenConns to the size of that one, as package pgxbox does for pgxpool.
	Transactional bool
	// MicroBatch is the number of messages that are handled one after the other in one transaction,
	// to share its commit. If one of them fails, all are rolled back and handled one by one, so
	// their handlers run twice. Implies Transactional. Defaults to 1.
	MicroBatch int

	// Retry says how often, and after which pauses, a message is handled again. Defaults to 15
	// attempts with full jitter: the last one comes after four and a half minutes on average. Until
	// the last one the key of the message waits, and other keys continue. With -1 attempts only a
	// [postbox.Permanent] error, or 16 crashes of its process, ends a message.
	Retry postbox.RetryProfile
	// Limits bound how fast all processes together handle the messages of a queue. For each key by
	// itself there is middleware.LimitEachKey. A message that has to wait costs no attempt. A limit
	// of calls at once is for the whole queue in all processes, and Concurrency for each process.
	// Give all subscribers of a queue the same; each queue of a [Subscriber] has these limits by
	// itself. Operators can change the limit of the whole queue: see admin.ChangeSettings. Default
	// to none.
	Limits postbox.Limits
	// MapError replaces the error of the handler by its own result. With [postbox.Permanent] the
	// message becomes a dead letter, [postbox.RetryAfter] sets the pause, and nil makes the message
	// done. Defaults to the error as it is.
	MapError func(Failure) error
	// Classify recognises outages, for example of a service that the handler needs. During an
	// outage the queue waits, no attempt counts, and one message probes it, each time another. It
	// is not asked about the end of a context alone, which is an attempt. By default only an outage
	// of the queue's database pauses the queue; that is asked on another connection. Nothing is
	// added: use [postbox.ClassifyNetwork] too, but only if all calls of the handler go to the same
	// service, or one bad address would stop all messages.
	Classify func(error) postbox.ErrorClass
	// OnDead is called after a message has become a dead letter, in a goroutine of its own. Use it
	// for alarms: a crash may lose the call. Close waits for the call up to the store's close
	// timeout, then ends its context. After two more seconds Close returns without it.
	OnDead func(ctx context.Context, failure Failure)
	// Poison, if set, says where each dead letter is published, too, except one that an operator
	// buries. Defaults to nowhere.
	Poison Poison

	// History is how long messages that are done are kept, for inspection and for audits. Defaults
	// to not at all.
	History time.Duration

	postbox.Tuning
}

func (c *Config) setDefaults() {
	c.MicroBatch = cmp.Or(c.MicroBatch, 1)
	c.Transactional = c.Transactional || c.MicroBatch > 1
	c.PageSize = cmp.Or(c.PageSize, max(drain.DefaultPageSize, c.MicroBatch))
	drain.SetDefaults(&c.Tuning)
	c.Concurrency = cmp.Or(c.Concurrency, defaultConcurrency)
	c.Retry = retries.WithDefaults(c.Retry, defaultMaxAttempts)
	if c.MapError == nil {
		c.MapError = func(f Failure) error { return f.Err }
	}
	if c.Classify == nil {
		c.Classify = func(error) postbox.ErrorClass { return postbox.Unclassified }
	}
}

// validate returns all problems of the configuration, for a database of that kind.
func (c Config) validate(kind dialect.Kind) error {
	problems := []error{drain.Valid(c.Tuning, c.Concurrency, c.Retry, kind), drain.Positive("MicroBatch", c.MicroBatch), spool.ValidLimits(c.Limits)}
	if len(c.Limits.Topics) > 0 {
		problems = append(problems, errors.New("Limits: Topics is for an outbox: set Total, since a queue has one topic"))
	}
	if c.MicroBatch > c.PageSize {
		problems = append(problems, fmt.Errorf("MicroBatch: %d is more than PageSize, %d", c.MicroBatch, c.PageSize))
	}
	if c.FailuresInRow != 0 || c.OutageLimit != 0 || c.CloseTimeout != 0 {
		problems = append(problems, errors.New("FailuresInRow, OutageLimit and CloseTimeout: leave them empty, since a queue has none"))
	}
	if c.History < 0 {
		problems = append(problems, fmt.Errorf("History: %s is negative", c.History))
	}
	if (c.Poison.Outbox == nil) != (c.Poison.Topic == "") {
		problems = append(problems, errors.New("Poison: set both Outbox and Topic, or none"))
	}
	if err := given.Outbox(c.Poison.Outbox); err != nil {
		problems = append(problems, fmt.Errorf("Poison.Outbox: %w", err))
	}
	return errors.Join(problems...)
}

// drainer returns the engine's form of the configuration.
func (c Config) drainer(core *inbox.Core) drain.Config {
	engine := drain.Tuned(c.Tuning, c.Concurrency, c.Retry)
	engine.BatchSize = c.MicroBatch
	engine.Unordered, engine.History, engine.Limits = c.Unordered, c.History, c.Limits
	if c.Park {
		engine.Head = drain.HeadPark
	}
	engine.Close, engine.Local, engine.Unprepared = core.CloseTimeout, true, core.Prepared == nil
	return engine
}
