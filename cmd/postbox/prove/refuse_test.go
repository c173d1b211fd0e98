package prove

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const skips = " FOR UPDATE SKIP LOCKED"

// A server without SKIP LOCKED answers with a syntax error, and TiDB locks nothing. Both are played
// by the driver: all else comes from the real server.
func TestRun_refuses_a_server_that_does_not_leave_out_locked_rows(t *testing.T) {
	t.Parallel()
	for name, stub := range map[string]struct{ instead, refusal string }{
		"a syntax error": {" FOR UPDATE SKIP OVER LOCKED", "the server does not execute FOR UPDATE SKIP LOCKED, without which a message could be handled twice"},
		"no lock":        {"", "two transactions got the same row"},
		"it waits":       {" FOR UPDATE", "waits for a locked row"},
	} {
		for kind, database := range map[string]func(*testing.T) *testdb.Database{"postgres": testdb.Postgres, "mariadb": testdb.MySQL} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				database := database(t)
				g := on(database, "")
				o := g.options("{}", func(string) {})
				o.Open = func(dsn string) (*sql.DB, error) {
					return sql.OpenDB(replacing{database.DB.Driver(), dsn, stub.instead}), nil
				}
				_, err := Run(t.Context(), o)
				require.ErrorIs(t, err, errRefused)
				require.ErrorContains(t, err, stub.refusal)
			})
		}
	}
}

// replacing opens connections whose statements have other words instead of SKIP LOCKED.
type replacing struct {
	driver  driver.Driver
	dsn     string
	instead string
}

func (r replacing) Driver() driver.Driver { return r.driver }

func (r replacing) Connect(context.Context) (driver.Conn, error) {
	conn, err := r.driver.Open(r.dsn)
	return replacingConn{conn, r.instead}, err
}

type replacingConn struct {
	driver.Conn

	instead string
}

func (c replacingConn) Prepare(query string) (driver.Stmt, error) {
	return c.Conn.Prepare(strings.ReplaceAll(query, skips, c.instead))
}

func (c replacingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options) //nolint:forcetypeassert // both drivers have it
}

// Without indexes the statements of PostgreSQL work, and read all that waits. Those of the others
// name their indexes.
func TestPlans_that_read_whole_tables_are_found(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, database *testdb.Database) {
		r := &run{Options: on(database, t.TempDir()).options("{}", nil)}
		r.place = &place{dialect: r.Dialect, db: database.Migrate(t).DB}
		found, err := r.plans(t.Context())
		require.NoError(t, err)
		require.Len(t, found, 3)
		for _, p := range found {
			require.False(t, p.slow(), p)
			require.Equal(t, r.Dialect != postbox.SQLite, p.reads > 0, p)
		}
		if r.Dialect != postbox.PostgreSQL {
			return
		}
		address, err := url.Parse(database.DSN)
		require.NoError(t, err)
		query := address.Query()
		for _, name := range []string{"enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"} {
			query.Set(name, "off")
		}
		address.RawQuery = query.Encode()
		r.place.db, err = r.Open(address.String())
		require.NoError(t, err)
		defer func() { require.NoError(t, r.place.db.Close()) }()
		report := &Report{}
		require.NoError(t, r.judgePlans(t.Context(), report))
		require.Positive(t, report.SlowPlans)
		require.Contains(t, report.Examples[0], "slow plan: the read of the next messages reads")
	})
}
