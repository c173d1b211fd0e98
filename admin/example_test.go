package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

func Example() {
	if err := dealWithDeadLetters(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order-1 died after 3 attempts: broker says no
	// order-2 died after 3 attempts: broker says no
	// resolved for good: true
	// requeued 1: 1 pending and 0 dead in outbox "outbox"
}

func dealWithDeadLetters(ctx context.Context) error {
	db, err := sql.Open("sqlite", "file:admin_example?mode=memory&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1) // SQLite has one writer, and this database ends with its connection
	if err := postbox.Migrate(ctx, postbox.Database{DB: db, Dialect: postbox.SQLite}); err != nil {
		return err
	}
	// Stands for a forwarder and a broker that refuses the messages.
	if err := letMessagesDie(ctx, db, "order-1", "order-2"); err != nil {
		return err
	}

	operator, err := admin.New(postbox.Database{DB: db, Dialect: postbox.SQLite}, admin.Config{}, nil)
	if err != nil {
		return err
	}
	letters, _, err := operator.DeadLetters(ctx, admin.Filter{Topic: "orders"})
	if err != nil {
		return err
	}
	for _, letter := range letters {
		fmt.Printf("%s died after %d attempts: %s\n", letter.MessageID, letter.Attempts, letter.Error)
	}

	if _, err := operator.Resolve(ctx, admin.Filter{ID: letters[0].ID}, "the customer has cancelled"); err != nil {
		return err
	}
	_, err = operator.Requeue(ctx, admin.Filter{ID: letters[0].ID}, admin.Again{})
	fmt.Println("resolved for good:", errors.Is(err, admin.ErrRefused))

	requeued, err := operator.Requeue(ctx, admin.Filter{Topic: "orders"}, admin.Again{})
	if err != nil {
		return err
	}
	queues, err := operator.Queues(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("requeued %d: %d pending and %d dead in %s\n", requeued, queues[0].Pending, queues[0].Dead, queues[0].Target)
	return nil
}

// letMessagesDie writes messages to the outbox and moves them to the dead letters.
func letMessagesDie(ctx context.Context, db *sql.DB, ids ...string) error {
	names, err := dialect.NewNames("", "", "")
	if err != nil {
		return err
	}
	statements, err := dialect.New(dialect.SQLite, names)
	if err != nil {
		return err
	}
	outbox := spool.New(statements, spool.DefaultOutbox)
	for _, id := range ids {
		draft := spool.Draft{Topic: "orders", MessageID: id, Payload: []byte("{}")}
		if err := outbox.Append(ctx, db, spool.Run, []spool.Draft{draft}); err != nil {
			return err
		}
	}
	// The forwarder does this after the last attempt.
	_, err = db.ExecContext(ctx, `
		INSERT INTO postbox_dead_letters (origin, subject, error, spool, consumer, topic, message_id, payload, metadata,
		                                  created_at, died_at, attempts)
		SELECT 0, CAST('m' AS BLOB), 'broker says no', spool, '', topic, message_id, payload, metadata, created_at, created_at, 3
		FROM postbox_messages ORDER BY id;
		DELETE FROM postbox_messages`)
	return err
}
