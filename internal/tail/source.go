package tail

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/meter"
)

// Source reads the log of a database. It is safe for concurrent use by any number of outboxes.
type Source interface {
	// Follow puts the messages of an outbox into its feed until ctx ends. It returns an error only
	// if tailing is required and waiting does not help.
	Follow(ctx context.Context, outbox Outbox) error
}

// Outbox is an outbox that follows the log.
type Outbox struct {
	DB         *sql.DB // for statements beside the log
	Statements *dialect.Statements
	Feed       *Feed
	Meter      *meter.Spool
	Logger     watermill.LoggerAdapter
}
