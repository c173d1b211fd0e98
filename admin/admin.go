package admin

import (
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
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
	statements *operatorsql.Statements
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
	shared, err := spool.StatementsIn(db)
	if err != nil {
		return nil, failed(err)
	}
	if given.Nil(logger) {
		logger = watermill.NopLogger{}
	}
	statements, audit := operatorsql.New(shared), audit.NewAuditor(shared, config.Actor)
	return &Admin{
		db: db.DB, config: config, statements: statements, logger: logger,
		letters:  newLetters(db.DB, statements, audit, config.Outbox, logger),
		operator: newOperator(db.DB, statements, audit, logger),
	}, nil
}
