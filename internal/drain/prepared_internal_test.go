package drain

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A drainer reads any number of lanes together, and leaves out topics and keys in all combinations.
// On MariaDB nearly each of these reads has a text of its own. What stays prepared on its
// connection is what docs/scaling.md says of a forwarder or queue.
func TestDrainer_keeps_few_statements_prepared(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *testdb.Database{"postgres-pq": testdb.Postgres, "mariadb": testdb.MySQL} { // pgx prepares by itself
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const lanes, others = dialect.Lanes, 14
			database := open(t)
			db := database.Open(t)
			db.SetMaxOpenConns(1)
			own := newOutbox(t, database)
			d, end := newStepped(db, own, 10)
			defer end()
			d.config.History = 1
			require.NoError(t, d.tryOpen(t.Context()))
			d.step(t.Context())
			require.Len(t, d.lanes.held, lanes)

			reads := map[string]bool{}
			check := func(params dialect.FetchParams) {
				t.Helper()
				_, err := d.reader.fetch(t.Context(), params)
				require.NoError(t, err)
				reads[own.Statements.Fetch(params).Text] = true
				_, err = d.reader.findFreed(t.Context(), dialect.SweepParams{
					Spool: d.id.Load(), Excluded: params.Excluded, PausedKeys: params.PausedKeys, Held: params.Held,
				})
				require.NoError(t, err)
			}
			for n := range lanes + 1 {
				for variant := range 16 {
					params := d.reader.params(d.lanes.numbers()[:n], 10)
					params.UpTo, params.PausedKeys = 0, variant&1 != 0
					if variant&2 != 0 {
						params.Excluded = []string{"orders"}
					}
					if variant&4 != 0 {
						params.Held = []int64{1}
					}
					if variant&8 != 0 {
						params.UpTo = 1
					}
					check(params)
				}
			}
			d.reader.findWriters(t.Context())
			for n := range 3 { // messages that are ready, that waited, and both
				var refs []dialect.Ref
				for state := range 2 {
					if n == state || n == 2 {
						refs = append(refs, dialect.Ref{State: 2 * state}, dialect.Ref{State: 2 * state, ID: 1})
					}
				}
				for _, how := range []manner{{}, {keep: true}, {lock: true}, {keep: true, lock: true}} {
					for _, part := range [][]dialect.Ref{refs, refs[:1]} {
						how.seen = d.settle.seen()
						_, err := d.settle.remove(t.Context(), part, how)
						require.NoError(t, err)
						d.prepared.Wait()
					}
				}
			}
			t.Logf("%d reads, %d statements prepared", len(reads), preparedOn(t, db, database.Dialect))
			require.LessOrEqual(t, preparedOn(t, db, database.Dialect), readsPrepared+others)
			require.LessOrEqual(t, len(d.reader.reads), readsPrepared)
			end()
			require.Zero(t, preparedOn(t, db, database.Dialect), "it gives up all at its end")
		})
	}
}

// A read may be prepared and then fail, as where its context ends in between. It stayed prepared,
// and was not counted.
func TestDrainer_counts_reads_that_are_prepared_and_fail(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		own := newOutbox(t, database)
		d, end := newStepped(database.DB, own, 10)
		defer end()
		require.NoError(t, d.tryOpen(t.Context()))
		params := d.reader.params(nil, 10)
		text := own.Statements.Fetch(params).Text
		_, err := d.prepared.Get(t.Context(), text) //nolint:sqlclosecheck // it stays prepared
		require.NoError(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = d.reader.fetch(ended, params)
		require.ErrorIs(t, err, context.Canceled)
		require.Contains(t, d.reader.reads, text)
	})
}

// preparedOn counts the statements that are prepared on the only connection of a pool.
func preparedOn(t *testing.T, db *sql.DB, kind postbox.Dialect) (count int) {
	t.Helper()
	query := "SELECT COUNT(*) FROM pg_prepared_statements"
	if kind == postbox.MySQL {
		query = "SELECT CAST(SUM(IF(UPPER(VARIABLE_NAME) = 'COM_STMT_PREPARE', 1, -1) * VARIABLE_VALUE) AS SIGNED) FROM /*M! information_schema.SESSION_STATUS */ /*!80000 performance_schema.session_status */ " +
			"WHERE UPPER(VARIABLE_NAME) IN ('COM_STMT_PREPARE', 'COM_STMT_CLOSE')"
	}
	require.NoError(t, db.QueryRowContext(context.Background(), query).Scan(&count))
	return count
}
