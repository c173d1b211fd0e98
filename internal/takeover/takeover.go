// Package takeover has what a forwarder and the sources of its messages share.
package takeover

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Source is a table of another outbox, from which messages are taken over.
type Source interface {
	// Check returns all that is wrong with the source for a kind of database.
	Check(kind postbox.Dialect) error
	// TakeOver takes messages over until the context ends. The source has been checked.
	TakeOver(ctx context.Context, into Outbox)
}

// Outbox is what takes the messages.
type Outbox struct {
	DB         *sql.DB
	Statements *dialect.Statements
	Spool      *spool.Spool
	Logger     watermill.LoggerAdapter
}
