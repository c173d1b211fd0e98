package pgxbox_test

import (
	"context"
	"database/sql"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/pgxbox"
)

// shortly is the deadline of what waits for it.
const shortly = 300 * time.Millisecond

// in runs a function in a transaction, and wants no error.
func (s *service) in(fn func(ctx context.Context, tx pgx.Tx)) {
	s.t.Helper()
	require.NoError(s.t, pgxbox.InTx(s.t.Context(), s.pool, func(ctx context.Context, tx pgx.Tx) error {
		fn(ctx, tx)
		return nil
	}))
}

func TestTx_is_ended_by_its_owner_alone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		s.in(func(ctx context.Context, tx pgx.Tx) {
			defer func() { _ = tx.Rollback(ctx) }() // as code for pgx has it
			require.NoError(t, s.write(ctx, tx, "kept"))
			require.ErrorContains(t, tx.Commit(ctx), "is ended by what has begun it")
			require.ErrorContains(t, tx.Rollback(ctx), "is ended by what has begun it")
		})
		s.wrote("kept")
	})
}

func TestTx_begins_savepoints(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		s.in(func(ctx context.Context, tx pgx.Tx) {
			require.NoError(t, pgx.BeginFunc(ctx, tx, func(part pgx.Tx) error {
				require.ErrorIs(t, pgx.BeginFunc(ctx, part, func(part pgx.Tx) error {
					require.NoError(t, s.write(ctx, part, "undone"))
					return errHandler
				}), errHandler)
				return s.write(ctx, part, "kept")
			}))
			part, err := tx.Begin(ctx)
			require.NoError(t, err)
			_, err = part.Exec(ctx, "SELECT 1 / 0")
			require.Error(t, err)
			require.NoError(t, part.Rollback(ctx))
			require.ErrorIs(t, part.Rollback(ctx), pgx.ErrTxClosed)
			require.NoError(t, s.write(ctx, tx, "after"))
		})
		s.wrote("kept", "after")
	})
}

func TestTx_reads_rows_and_types_of_pgx(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		s.in(func(ctx context.Context, tx pgx.Tx) {
			require.NoError(t, s.write(ctx, tx, "id"))
			type effect struct {
				ID   string
				N    int
				Tags []string
			}
			rows, err := tx.Query(ctx, "SELECT id, n, tags FROM "+s.table().Sanitize()+" WHERE n <= $1 ORDER BY n", 1)
			require.NoError(t, err)
			effects, err := pgx.CollectRows(rows, pgx.RowToStructByName[effect])
			require.NoError(t, err)
			require.Equal(t, []effect{{"id", 0, []string{"exec"}}, {"id", 1, []string{"batch", "one"}}}, effects)
			require.EqualValues(t, 2, rows.CommandTag().RowsAffected())

			var span pgtype.Range[pgtype.Int4]
			require.NoError(t, tx.QueryRow(ctx, "SELECT int4range(1, 5)").Scan(&span))
			require.EqualValues(t, 5, span.Upper.Int32)
			require.ErrorIs(t, tx.QueryRow(ctx, "SELECT 1 WHERE false").Scan(new(int)), pgx.ErrNoRows)
			require.NotNil(t, tx.Conn().TypeMap())

			rows, err = tx.Query(ctx, "SELECT n, tags FROM "+s.table().Sanitize()+" ORDER BY n")
			require.NoError(t, err)
			require.True(t, rows.Next())
			require.Len(t, rows.FieldDescriptions(), 2)
			require.Len(t, rows.RawValues(), 2)
			values, err := rows.Values()
			require.NoError(t, err)
			require.EqualValues(t, 0, values[0])
			rows.Close()
			require.NoError(t, rows.Err())
		})
	})
}

func TestTx_returns_the_results_of_batches(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		s.in(func(ctx context.Context, tx pgx.Tx) {
			batch := &pgx.Batch{}
			batch.Queue(s.insert(), "id", 0, []string{})
			batch.Queue("SELECT generate_series(1, $1::int)", 3)
			batch.Queue("SELECT 7")
			results := tx.SendBatch(ctx, batch)
			tag, err := results.Exec()
			require.NoError(t, err)
			require.EqualValues(t, 1, tag.RowsAffected())
			rows, err := results.Query()
			require.NoError(t, err)
			numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.NoError(t, err)
			require.Equal(t, []int{1, 2, 3}, numbers)
			var seven int
			require.NoError(t, results.QueryRow().Scan(&seven))
			require.Equal(t, 7, seven)
			require.NoError(t, results.Close())
			require.NoError(t, results.Close())
		})
		s.in(func(ctx context.Context, tx pgx.Tx) {
			var sum int
			var changed int64
			batch := &pgx.Batch{}
			batch.Queue("SELECT generate_series(1, 3)").Query(func(rows pgx.Rows) error {
				for rows.Next() {
					var n int
					require.NoError(t, rows.Scan(&n))
					sum += n
				}
				return rows.Err()
			})
			batch.Queue("SELECT 4").QueryRow(func(row pgx.Row) error {
				var n int
				err := row.Scan(&n)
				sum += n
				return err
			})
			batch.Queue("UPDATE " + s.table().Sanitize() + " SET n = 1").Exec(func(tag pgconn.CommandTag) error {
				changed = tag.RowsAffected()
				return nil
			})
			require.NoError(t, tx.SendBatch(ctx, batch).Close())
			require.Equal(t, 10, sum)
			require.EqualValues(t, 1, changed)

			batch = &pgx.Batch{}
			batch.Queue("SELECT 1").Exec(func(pgconn.CommandTag) error { return errHandler })
			batch.Queue("SELECT 1").Exec(func(pgconn.CommandTag) error { panic("not called") })
			require.ErrorIs(t, tx.SendBatch(ctx, batch).Close(), errHandler)
			require.NoError(t, s.write(ctx, tx, "after"))
		})
		err := pgxbox.InTx(t.Context(), s.pool, func(ctx context.Context, tx pgx.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue("SELECT 1")
			batch.Queue("SELECT 1 / 0")
			return tx.SendBatch(ctx, batch).Close()
		})
		var said *pgconn.PgError
		require.ErrorAs(t, err, &said)
		require.Equal(t, "22012", said.Code)
	})
}

func TestTx_has_large_objects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *service) {
		s.in(func(ctx context.Context, tx pgx.Tx) {
			objects := tx.LargeObjects()
			id, err := objects.Create(ctx, 0)
			require.NoError(t, err)
			object, err := objects.Open(ctx, id, pgx.LargeObjectModeRead|pgx.LargeObjectModeWrite)
			require.NoError(t, err)
			_, err = object.Write([]byte("large"))
			require.NoError(t, err)
			_, err = object.Seek(0, io.SeekStart)
			require.NoError(t, err)
			content, err := io.ReadAll(object)
			require.NoError(t, err)
			require.Equal(t, "large", string(content))
			require.NoError(t, objects.Unlink(ctx, id))
		})
	})
}

// source is a source of a copy that uses the transaction meanwhile.
type source struct {
	pgx.CopyFromSource
	use func() error
	err error
}

func (c *source) Next() bool {
	c.err = c.use()
	return false
}

func (c *source) Err() error { return nil }

func TestTx_is_busy_while_it_is_in_use(t *testing.T) {
	t.Parallel()
	s := newService(t, 8)
	s.in(func(ctx context.Context, tx pgx.Tx) {
		rows, err := tx.Query(ctx, "SELECT generate_series(1, 3)")
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "SELECT 1")
		require.ErrorContains(t, err, "busy")
		rows.Close()
		uses := &source{use: func() error {
			again, found := pgxbox.TxFromContext(ctx)
			require.True(t, found)
			_, err := again.Exec(ctx, "SELECT 1")
			return err
		}}
		_, err = tx.CopyFrom(ctx, s.table(), []string{"id"}, uses)
		require.NoError(t, err)
		require.ErrorContains(t, uses.err, "busy")
		require.NoError(t, s.write(ctx, tx, "after"))
	})
	s.wrote("after")
}

func TestTxFromContext_without_a_transaction_of_the_pool_finds_none(t *testing.T) {
	t.Parallel()
	s := newService(t, 8)
	_, found := pgxbox.TxFromContext(t.Context())
	require.False(t, found)

	other := stdlib.OpenDBFromPool(s.pool)
	defer func() { require.NoError(t, other.Close()) }()
	for _, db := range []*sql.DB{s.DB, other} { // of lib/pq, and of pgx alone
		require.NoError(t, postbox.InTx(t.Context(), db, func(ctx context.Context, tx *sql.Tx) error {
			_, found := pgxbox.TxFromContext(ctx)
			require.False(t, found)
			_, err := tx.ExecContext(ctx, "SELECT 1") // the transaction has not failed
			return err
		}))
	}
}
