package pipeline_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// PgBouncer takes few options of an address.
func TestPooler_an_option_that_PgBouncer_refuses_says_what_to_do(t *testing.T) {
	t.Parallel()
	direct := testdb.Postgres(t)
	for name, driver := range pooled {
		db := direct.ThroughPooler(t, driver.driver, "search_path=public")
		db.Schema = ""
		err := postbox.Migrate(t.Context(), db)
		require.ErrorContains(t, err, "search_path", name)
		require.ErrorContains(t, err, "docs/poolers.md", name)
		err = postbox.InTx(t.Context(), db.DB, func(context.Context, *sql.Tx) error { return nil })
		require.ErrorContains(t, err, "docs/poolers.md", name)
	}
}

// pgx prepares each statement unless it is told not to. lib/pq is left out: behind a pooler it may
// execute a statement of another test.
func TestPooler_an_error_of_a_driver_that_prepares_says_what_to_do(t *testing.T) {
	t.Parallel()
	direct := testdb.Postgres(t)
	db := direct.ThroughPooler(t, "pgx", "default_query_exec_mode=cache_statement")
	owner := direct.Postbox()
	owner.Schema = db.Schema // functions name it
	require.NoError(t, postbox.Migrate(t.Context(), owner))
	publisher, err := forwarder.NewPublisher(db, forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	logger := &errorLog{}
	store, err := inboxstore.New(db, inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	operator, err := admin.New(db, admin.Config{}, nil)
	require.NoError(t, err)
	fwd, err := forwarder.New(db, refusing{}, forwarder.Config{}, logger)
	require.NoError(t, err)
	inBackground(t, fwd.Run, fwd.Close)

	key := func() inboxstore.Key {
		return inboxstore.Key{Consumer: "c", Topic: "orders", MessageID: watermill.NewUUID()}
	}
	for part, use := range map[string]func(ctx context.Context) error{
		"publisher": func(ctx context.Context) error {
			return postbox.InTx(ctx, db.DB, func(ctx context.Context, _ *sql.Tx) error {
				msg := message.NewMessage(watermill.NewUUID(), nil)
				msg.SetContext(ctx)
				return publisher.Publish("orders", msg)
			})
		},
		"inbox": func(ctx context.Context) error {
			_, err := store.Once(ctx, key(), func(context.Context) error { return nil })
			return err
		},
		"deferral": func(ctx context.Context) error {
			_, err := store.Defer(ctx, "queue", key(), message.NewMessage(watermill.NewUUID(), nil))
			return err
		},
		"admin": func(ctx context.Context) error {
			_, err := operator.Queues(ctx)
			return err
		},
	} {
		require.ErrorContains(t, untilError(t, use), "docs/poolers.md", part)
	}
	require.Eventually(t, func() bool { return len(logger.with("docs/poolers.md")) > 0 }, time.Minute, 20*time.Millisecond, "forwarder")
}

// untilError does something in several goroutines until one of them returns an error.
func untilError(t *testing.T, use func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found := make(chan error, 1)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := use(ctx); err != nil {
					select {
					case found <- err:
						cancel()
					default:
					}
				}
			}
		})
	}
	wg.Wait()
	return <-found
}

// refusing is a broker that takes nothing.
type refusing struct{}

// Publish fails.
func (refusing) Publish(string, ...*message.Message) error { return errors.New("refused") }

// Close does nothing.
func (refusing) Close() error { return nil }
