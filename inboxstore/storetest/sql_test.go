package storetest_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/inboxstore/storetest"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

func TestSQLStore_keeps_the_contract(t *testing.T) {
	t.Parallel()
	// A closed store refuses deferred messages only: what a handler under way has still to record
	// is written.
	features := storetest.Features{Transactional: true, SharedBetweenProcesses: true, Persistent: true, Delays: true, History: true}
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		storetest.Run(t, features, func(t *testing.T) storetest.Harness {
			return contractHarness(t, inboxtest.Another(t, database))
		})
	})
}

func contractHarness(t *testing.T, database *testdb.Database) storetest.Harness {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
	operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
	require.NoError(t, err)
	return storetest.Harness{
		Handle: contractHandle(t, database, database.DB),
		Open: func(t *testing.T) storetest.Handle {
			return contractHandle(t, database, database.Open(t))
		},
		DeadLetters: func(ctx context.Context) ([]storetest.DeadLetter, error) { return deadLetters(ctx, operator) },
		Pending: func(ctx context.Context, queue string) ([]storetest.Pending, error) {
			return pendingMessages(ctx, database, queue)
		},
		History: func(ctx context.Context, consumer string) ([]storetest.Handled, error) {
			return handled(ctx, operator, consumer)
		},
		AddEffect: func(ctx context.Context, tx *sql.Tx, effect string) error {
			_, err := tx.ExecContext(ctx, database.Bind("INSERT INTO effects VALUES (?)"), effect)
			return err
		},
		Effects: func(ctx context.Context) ([]string, error) {
			return selectAll(ctx, database, "SELECT id FROM effects", func(rows *sql.Rows, effect *string) error { return rows.Scan(effect) })
		},
	}
}

func contractHandle(t *testing.T, database *testdb.Database, db *sql.DB) storetest.Handle {
	t.Helper()
	store := inboxtest.StoreFor(t, database, db, func(c *inboxstore.Config) {
		c.CloseTimeout, c.CacheSize = storetest.CloseTimeout, 0 // the cache as users have it
	})
	return storetest.Handle{Store: store, Subscriber: func(t *testing.T, retry postbox.RetryProfile) message.Subscriber {
		t.Helper()
		subscriber, err := queue.NewSubscriber(store, queue.Config{Retry: retry, Tuning: postbox.Tuning{Lease: 5 * time.Second}}, nil)
		require.NoError(t, err)
		return subscriber
	}}
}

func handled(ctx context.Context, operator *admin.Admin, consumer string) (all []storetest.Handled, err error) {
	listed, _, err := operator.Messages(ctx, admin.Filter{Target: admin.Inbox(consumer), Status: admin.Done})
	if errors.Is(err, admin.ErrNotFound) { // before the first message
		return nil, nil
	}
	for _, m := range slices.Backward(listed) {
		read, err := operator.Message(ctx, admin.Filter{Target: admin.Inbox(consumer), ID: m.ID})
		if err != nil {
			return nil, err
		}
		all = append(all, storetest.Handled{
			Topic: m.Topic, MessageID: m.MessageID, Payload: read.Payload, Metadata: read.Metadata, Omitted: m.Omitted, ReceivedAt: m.CreatedAt, DoneAt: m.DoneAt,
		})
	}
	return all, err
}

func deadLetters(ctx context.Context, operator *admin.Admin) ([]storetest.DeadLetter, error) {
	listed, _, err := operator.DeadLetters(ctx, admin.Filter{})
	if err != nil {
		return nil, err
	}
	letters := make([]storetest.DeadLetter, len(listed))
	for i, l := range listed {
		whole, err := operator.DeadLetter(ctx, l.ID) // a list leaves out the payload
		if err != nil {
			return nil, err
		}
		letters[i] = storetest.DeadLetter{
			Consumer: whole.Consumer, Topic: whole.Topic, MessageID: whole.MessageID,
			Payload: whole.Payload, Metadata: whole.Metadata, Attempts: whole.Attempts, Error: whole.Error,
		}
		if whole.Consumer == "" {
			letters[i].Queue = whole.Topic
		}
		for _, failure := range whole.Failures {
			letters[i].Failures = append(letters[i].Failures, failure.Error)
		}
	}
	return letters, nil
}

func pendingMessages(ctx context.Context, database *testdb.Database, queue string) ([]storetest.Pending, error) {
	return selectAll(ctx, database, "SELECT message_id, attempts FROM postbox_messages WHERE topic = ? ORDER BY id",
		func(rows *sql.Rows, p *storetest.Pending) error { return rows.Scan(&p.MessageID, &p.Attempts) }, queue)
}

func selectAll[T any](
	ctx context.Context, database *testdb.Database, query string, scan func(rows *sql.Rows, row *T) error, args ...any,
) ([]T, error) {
	rows, err := database.DB.QueryContext(ctx, database.Bind(query), args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var found []T
	for rows.Next() {
		var row T
		if err := scan(rows, &row); err != nil {
			return nil, err
		}
		found = append(found, row)
	}
	return found, rows.Err()
}
