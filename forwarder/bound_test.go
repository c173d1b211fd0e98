package forwarder_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/verdict"
)

// A transaction of another library can only execute statements: it is bound, or travels in a
// context, and commits or rolls back what was published.
func TestPublisher_G1_publishes_in_a_transaction_that_only_executes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		stored := 6
		if database.Dialect == postbox.SQLite { // only the transaction could register the outbox
			inTx(t, database.DB, publisherFor(t, database, nil), "topic", newMessage("before", ""))
			stored++
		}
		publisher := publisherFor(t, database, nil)
		for name, end := range map[string]func(*sql.Tx) error{"1": (*sql.Tx).Rollback, "2": (*sql.Tx).Commit, "3": (*sql.Tx).Commit} {
			tx, err := database.Open(t).BeginTx(t.Context(), nil)
			require.NoError(t, err)
			only := postbox.ExecFunc(tx.ExecContext)
			require.NoError(t, publisher.Bind(only).Publish("topic", newMessage("bound "+name, "")))
			ctx := postbox.ContextWithTx(t.Context(), only)
			first, second := newMessage("first "+name, ""), newMessage("second "+name, "")
			first.SetContext(ctx)
			second.SetContext(ctx)
			require.NoError(t, publisher.Publish("topic", first, second))
			require.NoError(t, end(tx))
		}
		require.Equal(t, stored, pending(t, database))
	})
}

func TestContextWithTx_InTx_refuses_a_transaction_that_can_only_execute(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	ctx := postbox.ContextWithTx(t.Context(), postbox.ExecFunc(tx.ExecContext))
	_, found := postbox.TxFromContext(ctx)
	require.False(t, found)
	require.False(t, postbox.AfterCommit(ctx, func() { t.Error("nobody hears of this commit") }))
	err = postbox.InTx(ctx, database.DB, func(context.Context, *sql.Tx) error { t.Error("it ran"); return nil })
	require.ErrorIs(t, err, postbox.ErrNoTransaction)
	require.ErrorContains(t, err, "a transaction of another library")

	for name, tx := range map[string]postbox.Executor{"pool": database.DB, "nil": (*sql.Tx)(nil), "no function": postbox.ExecFunc[sql.Result](nil)} {
		msg := newMessage("1", "")
		msg.SetContext(postbox.ContextWithTx(t.Context(), tx))
		require.ErrorIs(t, publisherFor(t, database, nil).Publish("topic", msg), postbox.ErrNoTransaction, name)
	}
	_, found = postbox.TxFromContext(postbox.ContextWithTx(ctx, &struct{ *sql.Tx }{tx}))
	require.True(t, found, "a struct that embeds a transaction of database/sql")
}

// The number of the outbox has to be asked for, and neither the transaction nor the pool can do
// that.
func TestPublisher_says_what_to_do_if_it_has_no_connection_to_look_up_the_outbox(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	database.DB.SetMaxOpenConns(1)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	publisher := publisherFor(t, database, nil)
	err = publisher.Bind(postbox.ExecFunc(tx.ExecContext)).Publish("topic", newMessage("1", ""))
	require.ErrorContains(t, err, "keep a connection of the publisher's *sql.DB free")
	require.NoError(t, tx.Rollback())
	require.Zero(t, pending(t, database))
}

// Also where the first message carries none, and would be committed by itself together with the
// others.
func TestPublisher_G1_messages_of_different_transactions_are_refused(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.AllowAutocommit = true })
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var returned context.Context
	other := testdb.SQLite(t).DB
	require.ErrorIs(t, postbox.InTx(t.Context(), other, func(ctx context.Context, _ *sql.Tx) error { returned = ctx; return errBroker }), errBroker)
	contexts := map[string]context.Context{
		"none":            t.Context(),
		"another library": postbox.ContextWithTx(t.Context(), postbox.ExecFunc(tx.ExecContext)),
		"again":           postbox.ContextWithTx(t.Context(), postbox.ExecFunc(tx.ExecContext)),
		"database/sql":    postbox.ContextWithTx(t.Context(), tx),
		"a pool":          postbox.ContextWithTx(t.Context(), other),
		"returned":        returned,
	}
	for one, ctx := range contexts {
		for two, another := range contexts {
			if one == two {
				continue
			}
			first, second := newMessage("1", ""), newMessage("2", "")
			first.SetContext(ctx)
			second.SetContext(another)
			require.Error(t, publisher.Publish("topic", first, second), "%s, then %s", one, two)
		}
	}
	require.NoError(t, tx.Rollback())
	require.Zero(t, pending(t, database))
}

type (
	// wrapper is what a library makes of a transaction, and unit what a user makes of that.
	wrapper struct{ *sql.Tx }
	unit    struct{ *Tx }
	// Tx is the wrapper under the name that libraries give it.
	Tx struct{ *sql.Tx }
)

// A transaction within wrappers is that transaction, and one that is nil within them is none.
func TestContextWithTx_sees_through_wrappers(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher := publisherFor(t, database, nil)
	tx, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for _, wrapped := range []postbox.Executor{tx, wrapper{tx}, &wrapper{tx}, unit{&Tx{tx}}, &unit{&Tx{tx}}} {
		found, ok := postbox.TxFromContext(postbox.ContextWithTx(t.Context(), wrapped))
		require.True(t, ok, "%T", wrapped)
		require.Same(t, tx, found)
	}
	for _, empty := range []postbox.Executor{nil, (*sql.Tx)(nil), wrapper{}, &wrapper{}, (*wrapper)(nil), unit{}, unit{&Tx{}}, (*unit)(nil)} {
		ctx := postbox.ContextWithTx(t.Context(), empty)
		_, ok := postbox.TxFromContext(ctx)
		require.False(t, ok, "%T", empty)
		msg := newMessage("1", "")
		msg.SetContext(ctx)
		require.ErrorIs(t, publisher.Publish("topic", msg), postbox.ErrNoTransaction)
		require.ErrorIs(t, publisher.Bind(empty).Publish("topic", newMessage("1", "")), postbox.ErrNoTransaction)
	}
}

func TestPublisher_a_message_that_is_nil_is_an_error(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.AllowAutocommit = true })
	var permanent *verdict.PermanentError
	require.ErrorAs(t, publisher.Publish("topic", newMessage("1", ""), nil), &permanent)
	require.ErrorContains(t, publisher.Bind(postbox.ExecFunc(database.DB.ExecContext)).Publish("topic", nil), "message 1 of 1 is nil")
	require.Zero(t, pending(t, database))
	_, err := forwarder.Decorate(publisher, nil)
	require.ErrorContains(t, err, "a decorator is nil")
}
