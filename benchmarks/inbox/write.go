package inbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"hash/crc32"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	stockforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/benchmarks/accounts"
	"github.com/postbox-go/watermill-postbox/benchmarks/load"
	"github.com/postbox-go/watermill-postbox/benchmarks/measure"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// writers are the clients that write at a time.
const writers = 8

// Write writes a message in the transaction of a business insert.
func Write() measure.Scenario {
	return measure.Scenario{
		Name:  "write",
		About: "a transaction of one business insert and one message, 8 clients",
		Floor: "by-hand",
		Turns: 3, // ours and the floor lie closer together than five turns can tell
		Contenders: []measure.Contender{
			{Name: "ours", Run: func(ctx context.Context, stage *measure.Stage) error {
				return oursWrite(ctx, stage, load.Usual(), writers, stage.Scale(12_000, 3_000))
			}},
			{Name: "watermill-sql", Run: stockWrite},
			{Name: "by-hand", Run: writeByHand},
			{Name: "our-row-by-hand", Run: writeOurRow}, // what the target could be at most with that table
		},
		Targets: []measure.Target{{Name: "write", Ours: "ours", Other: "by-hand", AtLeast: 0.95}},
	}
}

// oursWrite writes n messages of a shape, so many clients at a time.
func oursWrite(ctx context.Context, stage *measure.Stage, shape load.Shape, clients, n int) error {
	return writeOurs(ctx, stage, shape, clients, n, func(*message.Message) {})
}

// writeOurs does so, and changes each message first.
func writeOurs(ctx context.Context, stage *measure.Stage, shape load.Shape, clients, n int, change func(msg *message.Message)) error {
	return writeTo(ctx, stage, shape, clients, n, forwarder.PublisherConfig{}, change)
}

// writeTo does so with a configuration of the publisher.
func writeTo(
	ctx context.Context, stage *measure.Stage, shape load.Shape, clients, n int, config forwarder.PublisherConfig, change func(msg *message.Message),
) error {
	if err := postbox.Migrate(ctx, postbox.Database{DB: stage.Setup, Dialect: postbox.PostgreSQL}); err != nil {
		return err
	}
	if err := accounts.Create(ctx, stage.Setup, createOrders); err != nil {
		return err
	}
	publisher, err := forwarder.NewPublisher(postbox.Database{DB: stage.DB, Dialect: postbox.PostgreSQL}, config, nil)
	if err != nil {
		return err
	}
	order, err := stage.DB.PrepareContext(ctx, insertOrder)
	if err != nil {
		return err
	}
	defer func() { _ = order.Close() }()
	err = shape.Deliver(ctx, stage, clients, n, func(ctx context.Context, msg *message.Message) error {
		change(msg)
		return postbox.InTx(ctx, stage.DB, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.StmtContext(ctx, order).ExecContext(ctx, 1, 1); err != nil {
				return err
			}
			msg.SetContext(ctx)
			return publisher.Publish(load.Topic, msg)
		})
	})
	return errors.Join(err, publisher.Close())
}

// stockWrite is for comparison: a publisher for each transaction, and the envelope that Watermill's
// forwarder opens.
func stockWrite(ctx context.Context, stage *measure.Stage) error {
	if err := accounts.Create(ctx, stage.Setup, createOrders); err != nil {
		return err
	}
	first, err := stockPublisher(stage.Setup, true)
	if err != nil {
		return err
	}
	if err := first.Publish(load.Topic, load.Messages(0, 1)...); err != nil { // makes the tables
		return err
	}
	order, err := stage.DB.PrepareContext(ctx, insertOrder)
	if err != nil {
		return err
	}
	defer func() { _ = order.Close() }()
	return load.Deliver(ctx, stage, writers, 3_000, func(ctx context.Context, msg *message.Message) error { // no target depends on it
		return inTx(ctx, stage.DB, func(tx *sql.Tx) error {
			if _, err := tx.StmtContext(ctx, order).ExecContext(ctx, 1, 1); err != nil {
				return err
			}
			publisher, err := stockPublisher(tx, false)
			if err != nil {
				return err
			}
			return publisher.Publish(load.Topic, msg)
		})
	})
}

func stockPublisher(db wmsql.ContextExecutor, initialize bool) (message.Publisher, error) {
	inner, err := wmsql.NewPublisher(db, wmsql.PublisherConfig{
		SchemaAdapter: wmsql.DefaultPostgreSQLSchema{}, AutoInitializeSchema: initialize,
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return stockforwarder.NewPublisher(inner, stockforwarder.PublisherConfig{}), nil
}

func writeByHand(ctx context.Context, stage *measure.Stage) error {
	if err := accounts.Create(ctx, stage.Setup, createOutbox); err != nil {
		return err
	}
	return writeRows(ctx, stage, insertOutbox, func(msg *message.Message, metadata []byte) []any {
		return []any{load.Topic, msg.UUID, metadata, []byte(msg.Payload)}
	})
}

// writeOurRow inserts by hand what ours inserts, into the same table, as if nobody drained it.
func writeOurRow(ctx context.Context, stage *measure.Stage) error {
	if err := postbox.Migrate(ctx, postbox.Database{DB: stage.Setup, Dialect: postbox.PostgreSQL}); err != nil {
		return err
	}
	return writeRows(ctx, stage, insertOurRow, func(msg *message.Message, metadata []byte) []any {
		key := []byte(msg.Metadata.Get(postbox.MetadataOrderingKey))
		hash := crc32.ChecksumIEEE(key)
		return []any{hash % dialect.Lanes, hash, load.Topic, []byte(msg.UUID), key, []byte(msg.Payload), metadata}
	})
}

// writeRows inserts an order and a row in each transaction.
func writeRows(ctx context.Context, stage *measure.Stage, insert string, values func(msg *message.Message, metadata []byte) []any) error {
	if err := accounts.Create(ctx, stage.Setup, createOrders); err != nil {
		return err
	}
	order, err := stage.DB.PrepareContext(ctx, insertOrder)
	if err != nil {
		return err
	}
	defer func() { _ = order.Close() }()
	row, err := stage.DB.PrepareContext(ctx, insert)
	if err != nil {
		return err
	}
	defer func() { _ = row.Close() }()
	return load.Deliver(ctx, stage, writers, stage.Scale(12_000, 3_000), func(ctx context.Context, msg *message.Message) error {
		return inTx(ctx, stage.DB, func(tx *sql.Tx) error {
			if _, err := tx.StmtContext(ctx, order).ExecContext(ctx, 1, 1); err != nil {
				return err
			}
			metadata, err := json.Marshal(msg.Metadata)
			if err != nil {
				return err
			}
			_, err = tx.StmtContext(ctx, row).ExecContext(ctx, values(msg, metadata)...)
			return err
		})
	})
}

// inTx runs fn in a transaction.
func inTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
