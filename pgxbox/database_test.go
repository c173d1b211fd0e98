package pgxbox_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/pgxbox"
	"github.com/postbox-go/watermill-postbox/queue"
)

func TestDatabase_without_a_pool_is_refused(t *testing.T) {
	t.Parallel()
	_, err := forwarder.NewPublisher(pgxbox.Database(nil), forwarder.PublisherConfig{}, nil)
	require.Error(t, err)
	require.Error(t, pgxbox.InTx(t.Context(), nil, func(context.Context, pgx.Tx) error { return nil }))
}

func TestDatabase_has_one_handle_for_a_pool(t *testing.T) {
	t.Parallel()
	s := newService(t, 3)
	first := pgxbox.Database(s.pool).DB
	require.Same(t, first, pgxbox.Database(s.pool).DB)
	require.Equal(t, 3, first.Stats().MaxOpenConnections)
	require.NoError(t, first.Close())
	require.NoError(t, s.pool.Ping(t.Context()), "the pool is open")
	second := pgxbox.Database(s.pool).DB
	require.NotSame(t, first, second)
	require.NoError(t, second.PingContext(t.Context()))
	require.NoError(t, second.Close())
}

// The handle keeps no connection from the rest of the service, even with the settings that are
// right for a handle without a pool behind it.
func TestDatabase_shares_its_connections_with_the_service(t *testing.T) {
	t.Parallel()
	const connections = 2
	s := newService(t, connections)
	s.database.DB.SetMaxIdleConns(connections)
	var users sync.WaitGroup
	for range connections {
		users.Go(func() {
			if err := s.database.DB.PingContext(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	users.Wait()
	require.Zero(t, s.pool.Stat().AcquiredConns())

	// All that wait for a connection take turns: those of the pool, and those of the handle, of
	// which there are always some.
	ctx, stop := context.WithCancel(t.Context())
	for range 4 * connections {
		users.Go(func() {
			for ctx.Err() == nil {
				_ = pgxbox.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT pg_sleep(0.001)")
					return err
				})
			}
		})
	}
	s.eventually(func() bool { return s.database.DB.Stats().WaitCount > 50 }, "the handle is busy")
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for range 20 {
		_, err := s.pool.Exec(limited, "SELECT 1")
		require.NoError(t, err)
	}
	stop()
	users.Wait()
}

// A pool keeps a session that cannot write, since it answers. Such a session leads to a server that
// was the primary, or a statement has made it so.
func TestDatabase_drops_sessions_that_cannot_write(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(s *service) error{
		"of a transaction": func(s *service) error {
			return pgxbox.InTx(t.Context(), s.pool, func(ctx context.Context, tx pgx.Tx) error { return s.write(ctx, tx, "id") })
		},
		"of a statement": func(s *service) error {
			_, err := s.database.DB.ExecContext(t.Context(), "DELETE FROM effects")
			return err
		},
		"of a query": func(s *service) error {
			return s.database.DB.QueryRowContext(t.Context(), "DELETE FROM effects RETURNING 1").Scan(new(int))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, 1)
			_, err := s.pool.Exec(t.Context(), "SET default_transaction_read_only = on")
			require.NoError(t, err)
			var said *pgconn.PgError
			require.ErrorAs(t, write(s), &said)
			require.Equal(t, "25006", said.Code)
			if err := write(s); err != nil {
				require.ErrorIs(t, err, sql.ErrNoRows)
			}
		})
	}
}

func TestDatabase_works_with_a_single_connection(t *testing.T) {
	t.Parallel()
	s := newService(t, 1)
	publisher, store := s.publisher(), s.store()
	ids := s.put(store, "q", 5, func(int) string { return "key" })
	s.work(store, "q", queue.Config{}, func(msg *message.Message) error {
		if err := s.effect(msg.Context(), msg.UUID); err != nil {
			return err
		}
		return published(msg.Context(), publisher, msg.UUID)
	})
	s.eventually(func() bool {
		return s.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'orders'") == len(ids)
	}, "all are handled")
	s.wrote(ids...)
}

// What a handler leaves open is its error, and has no effect.
func TestTx_with_open_rows_is_not_committed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		open := func(ctx context.Context, tx pgx.Tx) error {
			if err := s.write(ctx, tx, "id"); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, "SELECT generate_series(1, 1000)")
			require.NoError(t, err)
			require.True(t, rows.Next())
			return nil
		}
		inTx := func(ctx context.Context) error { return pgxbox.InTx(ctx, s.pool, open) }
		handle := func(msg *message.Message) error {
			tx, _ := pgxbox.TxFromContext(msg.Context())
			return open(msg.Context(), tx)
		}
		store := s.store()
		receive := s.inbox(store)

		err := inTx(t.Context())
		require.ErrorContains(t, err, "rows")
		require.NotErrorIs(t, err, postbox.ErrCommitUnknown)
		require.ErrorContains(t, receive(t.Context(), "id", handle), "rows")
		require.ErrorContains(t, receive(t.Context(), "id", func(msg *message.Message) error { return inTx(msg.Context()) }), "rows")

		s.put(store, "q", 1, func(int) string { return "" })
		s.work(store, "q", queue.Config{Retry: postbox.RetryProfile{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond}}, handle)
		s.eventually(func() bool { return s.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters") == 1 }, "it is a dead letter")
		require.NotZero(t, s.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE error LIKE '%rows%'"))
		s.wrote()
	})
}

func TestDatabase_of_a_pool_that_is_closed_returns_errors(t *testing.T) {
	t.Parallel()
	s := newService(t, 2)
	config := s.pool.Config()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	db := pgxbox.Database(pool).DB
	pool.Close()
	require.Error(t, pgxbox.InTx(t.Context(), pool, func(context.Context, pgx.Tx) error { return nil }))
	require.NoError(t, db.Close())
}
