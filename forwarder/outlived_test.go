package forwarder_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// straggler is a call in a goroutine that a function has left behind.
type straggler struct {
	begun    chan struct{}
	returned chan struct{} // closed when the function that left it behind has returned
	err      chan error
}

func newStraggler() *straggler {
	return &straggler{begun: make(chan struct{}), returned: make(chan struct{}), err: make(chan error, 1)}
}

// inTx begins InTx in a goroutine, returns when that has written one row, and lets it write a
// second one when its caller has returned.
func (s *straggler) inTx(ctx context.Context, database *testdb.Database) {
	go func() {
		s.err <- postbox.InTx(ctx, database.DB, writing(database, "debit", func(ctx context.Context, tx *sql.Tx) error {
			close(s.begun)
			<-s.returned
			return writing(database, "credit", nil)(context.WithoutCancel(ctx), tx)
		}))
	}()
	<-s.begun
}

// end lets the second half go on, and returns the error of the call.
func (s *straggler) end() error {
	close(s.returned)
	return <-s.err
}

func requireNoNames(t *testing.T, database *testdb.Database) {
	t.Helper()
	require.Empty(t, query(t, database.DB, "SELECT name FROM business"))
}

func TestInTx_G1_a_function_that_returns_before_a_nested_one_is_rolled_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		s := newStraggler()
		err := postbox.InTx(t.Context(), database.DB, writing(database, "outer", func(ctx context.Context, _ *sql.Tx) error {
			s.inTx(ctx, database)
			return nil
		}))
		inner := s.end()
		require.ErrorContains(t, err, "wait for that goroutine before you return")
		require.NotErrorIs(t, err, postbox.ErrCommitUnknown)
		require.Error(t, inner)
		requireNoNames(t, database)

		// A function around them that passes over the error cannot commit half of the innermost one
		// either.
		s = newStraggler()
		err = postbox.InTx(t.Context(), database.DB, writing(database, "outer", func(ctx context.Context, _ *sql.Tx) error {
			middle := postbox.InTx(ctx, database.DB, writing(database, "middle", func(ctx context.Context, _ *sql.Tx) error {
				s.inTx(ctx, database)
				return nil
			}))
			inner = s.end()
			require.ErrorContains(t, middle, "wait for that goroutine before you return")
			return nil
		}))
		require.Error(t, err)
		require.Error(t, inner)
		requireNoNames(t, database)
	})
}

// Postbox does not commit this transaction, so it has to keep its owner from doing that.
func TestInTx_G1_a_user_transaction_is_rolled_back_if_a_function_in_it_returns_too_early(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		s := newStraggler()
		err = postbox.InTx(postbox.ContextWithTx(t.Context(), tx), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			s.inTx(ctx, database)
			return nil
		})
		inner := s.end()
		require.ErrorContains(t, err, "wait for that goroutine before you return")
		require.Error(t, inner)
		require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
		requireNoNames(t, database)
	})
}

// Publish is stopped between its check of the context and its INSERT.
func TestInTx_G1_a_function_that_returns_before_a_call_of_Publish_is_rolled_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		s := newStraggler()
		publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) {
			c.OrderingKey = func(string, *message.Message) string {
				close(s.begun)
				<-s.returned
				return ""
			}
		})
		err := postbox.InTx(t.Context(), database.DB, writing(database, "outer", func(ctx context.Context, _ *sql.Tx) error {
			msg := newMessage("1", "")
			msg.SetContext(ctx)
			go func() { s.err <- publisher.Publish("topic", msg) }()
			<-s.begun
			return nil
		}))
		require.Error(t, s.end())
		require.ErrorContains(t, err, "wait for that goroutine before you return")
		requireNoNames(t, database)
		require.Zero(t, pending(t, database))
	})
}

func TestInTx_the_context_of_a_function_that_has_returned_carries_no_transaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		database.Exec(t, "CREATE TABLE business (name VARCHAR(20))")
		publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) { c.AllowAutocommit = true })
		refused := func(ctx context.Context) {
			t.Helper()
			err := postbox.InTx(ctx, database.DB, writing(database, "left behind", nil))
			require.ErrorIs(t, err, postbox.ErrNoTransaction)
			require.ErrorContains(t, err, "has returned")
			require.ErrorContains(t, err, "postbox.ContextWithTx(ctx, nil)")
			msg := newMessage("left behind", "")
			msg.SetContext(ctx)
			err = publisher.Publish("topic", msg)
			require.ErrorIs(t, err, postbox.ErrNoTransaction)
			require.ErrorContains(t, err, "has returned")
			_, carried := postbox.TxFromContext(ctx)
			require.False(t, carried)
		}
		var outer, nested context.Context
		require.NoError(t, postbox.InTx(t.Context(), database.DB, writing(database, "a", func(ctx context.Context, _ *sql.Tx) error {
			for _, fails := range []error{nil, errBroker} {
				require.ErrorIs(t, postbox.InTx(ctx, database.DB, func(ctx context.Context, _ *sql.Tx) error {
					nested = ctx
					return fails
				}), fails)
				refused(nested)
			}
			return nil
		})))
		require.ErrorIs(t, postbox.InTx(t.Context(), database.DB, writing(database, "rolled back", func(ctx context.Context, _ *sql.Tx) error {
			outer = ctx
			return errBroker
		})), errBroker)
		refused(outer)
		require.Panics(t, func() {
			_ = postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
				outer = ctx
				panic("oh")
			})
		})
		refused(outer)
		require.NoError(t, postbox.InTx(postbox.ContextWithTx(outer, nil), database.DB, writing(database, "b", nil)), "as the error says")
		require.Equal(t, []string{"a", "b"}, query(t, database.DB, "SELECT name FROM business ORDER BY name"))
		require.Zero(t, pending(t, database))
	})
}
