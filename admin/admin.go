package admin

import (
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/audit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Config is the configuration of an Admin. The zero value has all defaults.
type Config struct {
	// Outbox is the name of the outbox through which messages that became dead letters of an inbox
	// are published again. With any value, the dead letters of all outboxes and inboxes with the
	// same tables can be listed, and those of other outboxes can be requeued. Defaults to "outbox".
	Outbox string
	// Actor is who acts, for [Admin.Audit], unless the context of a call names another one: see
	// [ContextWithActor]. Up to 255 bytes are kept. Defaults to the user and the host of the
	// process, as user@host.
	Actor string
	// AllowEdit allows [Again.Payload] and [Again.Metadata]: each user of this Admin can then let
	// any payload be handled.
	AllowEdit bool
}

func (c *Config) setDefaults() {
	if c.Outbox == "" {
		c.Outbox = spool.DefaultOutbox
	}
}

// Admin inspects the tables of Postbox, deals with dead letters, and controls outboxes and queues.
// It is safe for concurrent use, also by several processes, and does not have to be closed.
type Admin struct {
	db         *sql.DB
	config     Config
	statements *dialect.Statements
	letters    *letterStore
	operator   *operator
	counting   atomic.Int32 // goroutines of Measure
	logger     watermill.LoggerAdapter
}

// New returns an Admin on the database, which it does not contact yet. The logger gets a line for
// each action; a nil logger logs nothing.
func New(db postbox.Database, config Config, logger watermill.LoggerAdapter) (*Admin, error) {
	config.setDefaults()
	if err := checkOutbox(config.Outbox); err != nil {
		return nil, fmt.Errorf("admin: invalid config: %w", err)
	}
	statements, err := spool.StatementsIn(db)
	if err != nil {
		return nil, failed(err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	audit := audit.NewAuditor(statements, config.Actor)
	return &Admin{
		db: db.DB, config: config, statements: statements, logger: logger,
		letters:  newLetters(db.DB, statements, audit, config.Outbox, logger),
		operator: newOperator(db.DB, statements, audit, logger),
	}, nil
}

// TopicStats counts the messages of one topic.
type TopicStats struct {
	Topic string
	// Pending is the number of messages in the outbox that are neither published nor dead. The
	// following four are parts of it, and overlap.
	Pending int
	// Due is the number of messages that wait neither for the time that their producer asked for
	// nor for their next attempt.
	Due int
	// InFlight is the number of messages that forwarders were publishing at their last heartbeat, a
	// few seconds ago at most, and never more than Pending: some may have been published since.
	// Forwarders that are silent for longer than their lease do not count, and neither do those
	// that stop.
	InFlight int
	// Failing is the number of messages with a failed attempt.
	Failing int
	// Parked is the number of messages that have used up their attempts and wait for an operator.
	// An outbox has none.
	Parked int
	// Dead is the number of dead letters of the outbox that no operator has resolved.
	Dead int
	// DeadInbox is the number of unresolved dead letters of all inboxes with the same tables, for
	// messages of this topic: one for each consumer that could not handle a message.
	DeadInbox int
	// OldestAge is how long ago the oldest pending message was written, by the database's clock; 0
	// if none is pending.
	OldestAge time.Duration
}
