package pipeline_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"modernc.org/sqlite"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// behind returns the database behind a relay, which outlives the handles on it.
func behind(t *testing.T, dialect postbox.Dialect, driver, dsn string) *testdb.Database {
	t.Helper()
	database := &testdb.Database{Dialect: dialect, Driver: driver, DSN: dsn}
	database.DB = database.Open(t)
	return database
}

// A standby that lagged takes over. What it never had is lost; all else is published, has its
// effect once, and in order.
func TestFailover_PostgreSQL_G2_promotes_a_standby_that_lags(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	newShop(t, behind(t, postbox.PostgreSQL, "postgres", p.DSN("postgres"))).live(t, replacement{
		fork: func(t *testing.T) { require.NoError(t, p.Sever(t.Context())) },
		replace: func(t *testing.T) {
			require.NoError(t, p.Stop(true))
			p.Relay.Cut()
			require.NoError(t, p.Promote(t.Context()))
			p.Relay.Move(p.Address())
		},
	})
}

// A synchronous standby takes over: nothing at all is lost.
func TestFailover_PostgreSQL_G2_promotes_a_synchronous_standby(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	newShop(t, behind(t, postbox.PostgreSQL, "pgx", p.DSN("postgres"))).live(t, replacement{
		fork: func(t *testing.T) { require.NoError(t, p.Synchronize(t.Context())) },
		replace: func(t *testing.T) {
			require.NoError(t, p.Stop(true))
			p.Relay.Cut()
			require.NoError(t, p.Promote(t.Context()))
			p.Relay.Move(p.Address())
		},
		lossless: true,
	})
}

// The database is put back to an older copy while the processes run.
func TestRestore_PostgreSQL_G2_goes_back_in_time(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	newShop(t, behind(t, postbox.PostgreSQL, "pgx", p.DSN("postgres"))).live(t, replacement{
		fork: func(t *testing.T) { require.NoError(t, p.Backup()) },
		replace: func(t *testing.T) {
			require.NoError(t, p.Stop(true))
			require.NoError(t, p.Restore(t.Context()))
		},
	})
}

// A replica that lagged takes over.
func TestFailover_MariaDB_G2_promotes_a_replica_that_lags(t *testing.T) {
	t.Parallel()
	m, err := testcluster.StartMariaDB(t.Context())
	clustertest.Require(t, m, err)
	newShop(t, behind(t, postbox.MySQL, "mysql", m.DSN("postbox"))).live(t, replacement{
		fork: func(t *testing.T) { require.NoError(t, m.Sever(t.Context())) },
		replace: func(t *testing.T) {
			require.NoError(t, m.Stop())
			m.Relay.Cut()
			require.NoError(t, m.Promote(t.Context()))
			m.Relay.Move(m.Address())
		},
	})
}

// The server comes back at its address with the data of an older backup while the processes run.
func TestRestore_MariaDB_G2_goes_back_in_time(t *testing.T) {
	t.Parallel()
	m, err := testcluster.StartMariaDB(t.Context())
	clustertest.Require(t, m, err)
	newShop(t, behind(t, postbox.MySQL, "mysql", m.DSN("postbox"))).live(t, replacement{
		fork: func(t *testing.T) { require.NoError(t, m.Backup(t.Context())) },
		replace: func(t *testing.T) {
			require.NoError(t, m.Stop())
			require.NoError(t, m.Restore(t.Context()))
		},
	})
}

// The file gets the content of an older copy while it is open, as the command ".restore" of
// SQLite's shell does it. Under a file that is moved away, open handles would go on writing to the
// one that is gone.
func TestRestore_SQLite_G2_goes_back_in_time(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	copied := filepath.Join(t.TempDir(), "copy.db")
	s := newShop(t, database)
	s.live(t, replacement{
		fork: func(t *testing.T) { database.Exec(t, "VACUUM INTO ?", copied) },
		replace: func(t *testing.T) {
			// A server that is replaced ends its connections. A delivery here could begin on the
			// one file and go on upon the other: its effect would be there before those that the
			// broker replays.
			s.awaitIdle(t)
			restoreSQLite(t, database.Open(t), copied)
		},
	})
}

func restoreSQLite(t *testing.T, db *sql.DB, from string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.Raw(func(driver any) error {
		backup, err := driver.(interface {
			NewRestore(from string) (*sqlite.Backup, error)
		}).NewRestore(from)
		if err != nil {
			return err
		}
		_, err = backup.Step(-1)
		return errors.Join(err, backup.Finish())
	}))
}
