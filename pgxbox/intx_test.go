package pgxbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/pgxbox"
)

var errHandler = errors.New("handler says no")

func TestInTx_G1_a_message_exists_if_and_only_if_the_transaction_committed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		publisher := s.publisher()
		place := func(id string, end func() error) error {
			return pgxbox.InTx(t.Context(), s.pool, func(ctx context.Context, tx pgx.Tx) error {
				if err := s.write(ctx, tx, id); err != nil {
					return err
				}
				if err := published(ctx, publisher, id); err != nil {
					return err
				}
				return end()
			})
		}
		require.NoError(t, place("kept", func() error { return nil }))
		require.ErrorIs(t, place("refused", func() error { return errHandler }), errHandler)
		require.PanicsWithValue(t, "oh", func() { _ = place("panicked", func() error { panic("oh") }) })
		s.wrote("kept")
		require.Equal(t, 1, s.pending())
	})
}

// A transaction that the service has begun and ends itself.
func TestPublisher_G1_writes_in_a_transaction_of_the_service(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		publisher := s.publisher()
		for id, end := range map[string]func(pgx.Tx) error{
			"kept":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
			"undone": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		} {
			tx, err := s.pool.Begin(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.write(t.Context(), tx, id))
			require.NoError(t, published(postbox.ContextWithTx(t.Context(), postbox.ExecFunc(tx.Exec)), publisher, id))
			require.NoError(t, end(tx))
		}
		s.wrote("kept")
		require.Equal(t, 1, s.pending())
	})
}

// A conflict is the caller's to repeat: the function runs once.
func TestInTxWith_returns_a_serialization_failure(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		serializable := &sql.TxOptions{Isolation: sql.LevelSerializable}
		read := func(ctx context.Context, tx pgx.Tx) error {
			var n int
			return tx.QueryRow(ctx, "SELECT COUNT(*) FROM "+s.table().Sanitize()).Scan(&n)
		}
		runs := 0
		place := func(conflict bool) error {
			return pgxbox.InTxWith(t.Context(), s.pool, serializable, func(ctx context.Context, tx pgx.Tx) error {
				runs++
				if err := read(ctx, tx); err != nil {
					return err
				}
				if conflict {
					require.NoError(t, pgxbox.InTxWith(t.Context(), s.pool, serializable, func(ctx context.Context, tx pgx.Tx) error {
						return errors.Join(read(ctx, tx), s.write(ctx, tx, "other"))
					}))
				}
				return s.write(ctx, tx, "mine")
			})
		}
		var said *pgconn.PgError
		require.ErrorAs(t, place(true), &said)
		require.Equal(t, "40001", said.Code)
		require.Equal(t, 1, runs)
		s.wrote("other")
		require.NoError(t, place(false))
		s.wrote("other", "mine")
	})
}

func TestInTx_within_itself_is_a_savepoint(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		require.NoError(t, pgxbox.InTx(t.Context(), s.pool, func(ctx context.Context, _ pgx.Tx) error {
			require.NoError(t, s.effect(ctx, "outer"))
			require.ErrorIs(t, pgxbox.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
				require.NoError(t, s.write(ctx, tx, "undone"))
				return errHandler
			}), errHandler)
			return pgxbox.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error { return s.write(ctx, tx, "inner") })
		}))
		s.wrote("outer", "inner")
	})
}

func TestInTx_rolls_back_when_its_context_ends(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		ctx, cancel := context.WithCancel(t.Context())
		err := pgxbox.InTx(ctx, s.pool, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, s.write(ctx, tx, "undone"))
			rows, err := tx.Query(ctx, "SELECT generate_series(1, 100000)")
			require.NoError(t, err)
			require.True(t, rows.Next())
			cancel()
			for rows.Next() { // until pgx or the rollback ends it
			}
			require.Error(t, rows.Err())
			s.eventually(func() bool {
				_, err := tx.Exec(context.WithoutCancel(ctx), s.insert(), "late", 0, []string{})
				return errors.Is(err, pgx.ErrTxClosed)
			}, "the transaction is over")
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		s.wrote()
		require.NoError(t, pgxbox.InTx(t.Context(), s.pool, func(ctx context.Context, tx pgx.Tx) error { return s.write(ctx, tx, "next") }))
		s.wrote("next")
	})
}

func TestInTx_without_a_function_is_an_error(t *testing.T) {
	t.Parallel()
	require.Error(t, pgxbox.InTx(t.Context(), newService(t, 1).pool, nil))
}
