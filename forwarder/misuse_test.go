package forwarder_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A *sql.DB or a *sql.Conn where the transaction should be: each message would be committed by
// itself, whatever becomes of the business data.
func TestBind_G1_refuses_pools_and_connections(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		conn, err := database.DB.Conn(t.Context())
		require.NoError(t, err)
		for _, executor := range []postbox.Executor{
			database.DB,
			struct{ *sql.DB }{database.DB},
			&struct{ *sql.DB }{database.DB},
			conn,
			struct{ *sql.Conn }{conn},
			&struct{ *sql.Conn }{conn},
			nil, (*sql.Tx)(nil),
			struct{ *sql.Tx }{},
			&struct{ *sql.Tx }{}, (*struct{ *sql.Tx })(nil),
			struct{ postbox.Executor }{},
		} {
			err := publisher.Bind(executor).Publish("topic", newMessage("1", ""))
			require.ErrorIs(t, err, postbox.ErrNoTransaction)
			require.ErrorContains(t, err, "AllowAutocommit")
		}
		require.NoError(t, conn.Close())
		require.Zero(t, pending(t, database))
	})
}

func TestKeepOpen_of_no_publisher_returns_an_error(t *testing.T) {
	t.Parallel()
	for _, publisher := range []message.Publisher{nil, (*forwarder.Publisher)(nil)} {
		kept := forwarder.KeepOpen(publisher)
		require.ErrorContains(t, kept.Publish("orders", newMessage("1", "")), `publish to topic "orders": the publisher that forwarder.KeepOpen got is nil`)
		require.False(t, given.PublishesInTx(kept))
		require.NoError(t, kept.Close())
	}
}

// The error was the same as that of a context that never had a transaction, and advised to use
// InTx, which the caller had done.
func TestPublish_with_the_context_of_a_committed_function_says_so(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, nil)
		publish := func(ctx context.Context) error {
			return publisher.Publish("topic", message.NewMessageWithContext(ctx, "late", nil))
		}
		var left, nested context.Context
		var hook error
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			left = ctx
			postbox.AfterCommit(ctx, func() { hook = publish(ctx) })
			return postbox.InTx(ctx, database.DB, func(ctx context.Context, _ *sql.Tx) error {
				nested = ctx
				return nil
			})
		}))
		for _, err := range []error{publish(left), publish(nested), hook} {
			require.ErrorIs(t, err, postbox.ErrNoTransaction)
			require.ErrorContains(t, err, "may have returned")
		}
		require.NotContains(t, publish(t.Context()).Error(), "returned")
		require.Zero(t, pending(t, database))
	})
}

// Each message would be written to the outbox again as soon as it is published.
func TestForwarder_refuses_the_publisher_of_its_own_outbox(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	own := publisherFor(t, database, nil)
	config := forwarder.Config{}
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	hiding := func(publisher message.Publisher) (message.Publisher, error) {
		return struct{ message.Publisher }{publisher}, nil
	}
	decorate := func(publisher message.Publisher) message.Publisher {
		decorated, err := forwarder.Decorate(publisher, hiding)
		require.NoError(t, err)
		return decorated
	}
	for _, publisher := range []message.Publisher{
		own, forwarder.KeepOpen(own), forwarder.KeepOpen(forwarder.KeepOpen(own)), own.Bind(tx),
		decorate(own), decorate(decorate(own)), decorate(forwarder.KeepOpen(own)), forwarder.KeepOpen(decorate(own)),
	} {
		_, err := forwarder.New(database.Postbox(), publisher, config, nil)
		require.ErrorContains(t, err, "use the publisher of your broker")
	}
	sameTables := database.Postbox()
	sameTables.Prefix = "postbox_" // the default
	_, err = forwarder.New(sameTables, own, config, nil)
	require.Error(t, err)

	elsewhere := config
	elsewhere.Outbox = "another"
	_, err = forwarder.New(database.Postbox(), own, elsewhere, nil)
	require.NoError(t, err, "from one outbox to another there is no circle")
	_, err = forwarder.New(database.Postbox(), decorate(own), elsewhere, nil)
	require.NoError(t, err)
	_, err = forwarder.New(testdb.SQLite(t).Postbox(), forwarder.KeepOpen(own), config, nil)
	require.NoError(t, err, "nor from one database to another")
}

func TestNew_refuses_a_source_that_is_nil(t *testing.T) {
	t.Parallel()
	_, err := forwarder.New(testdb.SQLite(t).Postbox(), &broker{}, forwarder.Config{Sources: []forwarder.Source{nil}}, nil)
	require.ErrorContains(t, err, "Sources[0]: is nil")
}
