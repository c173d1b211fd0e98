package forwarder_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// An idle forwarder costs at most two statements a second: counted at the driver, over the time of
// several leases.
func TestForwarder_G8_idle_costs_two_statements_a_second(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *testdb.Database{"sqlite": testdb.SQLite, "postgres": testdb.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := open(t).Migrate(t)
			var statements atomic.Int64
			counted := sql.OpenDB(countingConnector{database: database.DB.Driver(), dsn: database.DSN, statements: &statements})
			counted.SetMaxOpenConns(1)
			t.Cleanup(func() { _ = counted.Close() })
			fwd := forwarderFor(t, &testdb.Database{DB: counted, Dialect: database.Dialect}, &broker{}, func(c *forwarder.Config) {
				c.PollMin, c.PollMax, c.Lease = 0, 0, 0 // the defaults
				c.Outbox = "idle"                       // other tests of this process wake up those of the usual name
			})
			run(t, fwd)
			<-fwd.Running()
			const window = 10 * time.Second           // with two renewals of the leases
			settled := time.NewTimer(2 * time.Second) // polling has slowed down
			<-settled.C
			before := statements.Load()
			<-time.After(window)
			perSecond := float64(statements.Load()-before) / window.Seconds()
			t.Logf("%.2f statements a second", perSecond)
			require.LessOrEqual(t, perSecond, 2.0)
		})
	}
}

// countingConnector counts the statements that go through the connections of a driver.
type countingConnector struct {
	database   driver.Driver
	dsn        string
	statements *atomic.Int64
}

func (c countingConnector) Driver() driver.Driver { return c.database }

func (c countingConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.database.Open(c.dsn)
	return countingConn{Conn: conn, statements: c.statements}, err
}

type countingConn struct {
	driver.Conn
	statements *atomic.Int64
}

// Prepare is how database/sql runs everything on a connection that offers no more.
func (c countingConn) Prepare(query string) (driver.Stmt, error) {
	stmt, err := c.Conn.Prepare(query)
	return countingStmt{Stmt: stmt, statements: c.statements}, err
}

func (c countingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	beginner, ok := c.Conn.(driver.ConnBeginTx)
	if !ok {
		return nil, errors.New("the driver has no BeginTx")
	}
	c.statements.Add(2) // this one, and the one that ends the transaction
	return beginner.BeginTx(ctx, options)
}

type countingStmt struct {
	driver.Stmt
	statements *atomic.Int64
}

func (s countingStmt) Exec(args []driver.Value) (driver.Result, error) {
	s.statements.Add(1)
	return s.Stmt.Exec(args) //nolint:staticcheck // database/sql calls this one where there is no other
}

func (s countingStmt) Query(args []driver.Value) (driver.Rows, error) {
	s.statements.Add(1)
	return s.Stmt.Query(args) //nolint:staticcheck // database/sql calls this one where there is no other
}
