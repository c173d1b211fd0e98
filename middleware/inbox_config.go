package middleware

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// defaultMaxAttempts is the default of Retry.Attempts in [InboxConfig].
const defaultMaxAttempts = 15

// InboxConfig says how an inbox identifies messages and what it does with failures.
type InboxConfig struct {
	// Consumer is the name under which messages are claimed: a message has one effect for each
	// consumer. Defaults to the name of the router's handler. Keep it when you rename the handler;
	// otherwise every message is new to it.
	Consumer string
	// Topic is the topic within which each message has its own id. Defaults to the topic that the
	// router's handler subscribes to, on which messages are published again whatever Topic is.
	Topic string
	// MessageID returns the id of a message, "" when it has none. Defaults to its UUID.
	MessageID func(msg *message.Message) string
	// WithoutID names a message that has no id: see kafkabroker.Coordinates and [PayloadHash]. By
	// default each delivery of such a message becomes a dead letter, since any name can be wrong.
	WithoutID func(msg *message.Message) (string, error)

	// Outbox takes the messages that the handler returns, through the transaction in their context:
	// a forwarder.Publisher, or another one with PublishesInTx. Without it, a handler
	// that returns messages fails.
	Outbox message.Publisher
	// PublishTopic is the topic of these messages. Defaults to the publish topic of the router's
	// handler.
	PublishTopic string
	// ReceiptTopic is the topic on which the inbox publishes a receipt of each message that it has
	// handled, through the Outbox and in the transaction of the handler: see package receipts.
	// There is none for a duplicate, for a message that became a dead letter, and for a message
	// that is itself a receipt. The receipt names the message by its UUID, or by the id of the
	// inbox if it has none, and by Topic, which must be that of the producer. It costs one more
	// INSERT into the outbox. Defaults to no receipts.
	ReceiptTopic string

	// History is how long messages that were handled are kept, with their payload, for inspection
	// and to be replayed: see docs/inbox.md. Operators find them as those of admin.Inbox. Defaults
	// to not at all. The store must be a [HistoryStore].
	History time.Duration
	// HistoryPayload is the largest size in bytes of payload and metadata together that the history
	// keeps. Of a larger message it has the metadata and the size. Defaults to 1 MiB.
	HistoryPayload int

	// MapError replaces the error of the handler by its own result. With [postbox.Permanent] the
	// message becomes a dead letter at once, [postbox.RetryAfter] sets the pause, and nil makes the
	// message done, without an effect. It is how errors that a handler does not return by itself
	// become permanent, such as that of Watermill's CQRS component for a message that it cannot
	// unmarshal. The message is as it was delivered, and a panic is an error with its stack. If
	// MapError panics, that is the error. Defaults to the error as it is.
	MapError func(msg *message.Message, err error) error

	// Retry sets how often a handler that fails runs, in all processes together, until its message
	// becomes a dead letter and is acked. It also sets the pause before each nack, since brokers
	// deliver a nacked message at once. If no attempt could be counted, because the database is
	// away or refuses the failure record, the pause grows with such nacks in a row. The
	// subscription waits meanwhile, also for the time of a [postbox.RetryAfter]; behind that of
	// watermill-sql for 5 s at most. In a transaction that the inbox did not begin there is no
	// pause, and its owner must commit recorded failures. Defaults to 15 attempts with full jitter.
	Retry postbox.RetryProfile
}

func (c *InboxConfig) setDefaults() {
	if c.MessageID == nil {
		c.MessageID = func(msg *message.Message) string { return msg.UUID }
	}
	c.Retry = retries.WithDefaults(c.Retry, defaultMaxAttempts)
}

// validate returns all mistakes in the configuration.
func (c InboxConfig) validate() error {
	var problems []error
	if err := retries.Validate(c.Retry); err != nil {
		problems = append(problems, fmt.Errorf("Retry: %w", err))
	}
	if c.History < 0 {
		problems = append(problems, fmt.Errorf("History: %s is negative", c.History))
	}
	if c.HistoryPayload < 0 {
		problems = append(problems, fmt.Errorf("HistoryPayload: %d bytes is negative", c.HistoryPayload))
	}
	if c.HistoryPayload != 0 && c.History == 0 {
		problems = append(problems, errors.New("HistoryPayload: set History too"))
	}
	if err := given.Outbox(c.Outbox); err != nil {
		problems = append(problems, fmt.Errorf("Outbox: %w", err))
	}
	if err := checkReceiptTopic(c.ReceiptTopic, c.Outbox); err != nil {
		problems = append(problems, fmt.Errorf("ReceiptTopic: %w", err))
	}
	return errors.Join(problems...)
}

// checkReceiptTopic returns an error if receipts cannot be published.
func checkReceiptTopic(topic string, outbox message.Publisher) error {
	switch {
	case topic == "":
		return nil
	case outbox == nil:
		return errors.New("receipts need an Outbox")
	default:
		return spool.CheckTopic(topic)
	}
}
