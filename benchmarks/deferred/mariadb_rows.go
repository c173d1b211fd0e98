package deferred

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
)

// ownRows are the tables and rows of Postbox, written by hand: what their parts cost shows what the
// rest of Postbox costs.
type ownRows struct {
	// indexes leaves the indexes of the messages in place, besides the primary key.
	indexes bool
	// lock holds the row by which drainers notice a transaction that has ids and has not ended.
	lock bool
}

// contender is [ingestGroupedMariaDB] with these rows, and two commits at a time.
func (o ownRows) contender(ctx context.Context, stage *measure.Stage, at site) error {
	if err := postbox.Migrate(ctx, at.filling()); err != nil {
		return err
	}
	if !o.indexes {
		if err := accounts.Create(ctx, at.setup, dropIndexes); err != nil {
			return err
		}
	}
	together := load.NewGroup(inFlight, commitsByHand, func(batch []*message.Message) error {
		tx, err := at.database.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		if err := o.store(ctx, tx, batch); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
	defer together.Close()
	return load.Deliver(ctx, stage, inFlight, at.stored, func(_ context.Context, msg *message.Message) error {
		return together.Do(msg)
	})
}

// store claims messages, which are all new, and stores them.
func (o ownRows) store(ctx context.Context, tx *sql.Tx, batch []*message.Message) error {
	var claims, rows []any
	for _, msg := range batch {
		claims = append(claims, ownClaim(msg))
		metadata, err := json.Marshal(msg.Metadata)
		if err != nil {
			return err
		}
		key := msg.Metadata.Get(postbox.MetadataOrderingKey)
		hash := keyhash.Of(key)
		rows = append(rows, keyhash.Lane(hash, dialect.Lanes), hash, queueName, []byte(msg.UUID), []byte(key), []byte(msg.Payload), metadata)
	}
	if _, err := tx.ExecContext(ctx, claimOwn+list(claimOwnEach, len(batch)), claims...); err != nil {
		return err
	}
	first := insertOwnEach
	if o.lock {
		first = insertOwnFirst
	}
	text := insertOwn + first
	if len(batch) > 1 {
		text += ", " + list(insertOwnEach, len(batch)-1)
	}
	_, err := tx.ExecContext(ctx, text, rows...)
	return err
}
