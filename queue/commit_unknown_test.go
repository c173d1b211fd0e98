package queue_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Nobody knows what became of the commit, so the message is looked for: it is gone, or it is
// handled again. Either way its effect is there once, and no attempt is counted. Also covers G7 and
// F26.
func TestQueue_G4_lost_answer_to_the_commit_leaves_one_effect(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ committed, micro bool }{
		"committed":                {committed: true},
		"lost":                     {},
		"committed, many messages": {committed: true, micro: true},
		"lost, many messages":      {micro: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				db, cut := cutting(t, database, test.committed)
				b := newQueueBench(t, database).Over(db)
				ids, config := []string{"a/1"}, inboxtest.Quick(inboxtest.Transactional)
				if test.micro {
					ids = []string{"a/1", "a/2", "b/1"}
					config = inboxtest.Quick(func(c *queue.Config) { c.MicroBatch, c.Concurrency = 3, 1 })
				}
				b.Put(ids...)
				cut.Store(true)
				var journal inboxtest.Journal
				b.Start(config, func(msg *message.Message) error {
					journal.Add(msg.UUID)
					return b.Effect(msg.Context(), msg)
				})
				b.Drained()
				require.False(t, cut.Load())
				require.ElementsMatch(t, ids, b.Effects())
				runs := len(ids)
				if !test.committed {
					runs *= 2
				}
				require.Len(t, journal.All(), runs, "what was committed is not run again")
				require.Empty(t, b.Failures())
			})
		})
	}
}

// cutting returns a handle whose connection breaks, once it is told to, at the next commit of an
// effect: before or after the server did it.
func cutting(t *testing.T, database *testdb.Database, committed bool) (*sql.DB, *atomic.Bool) {
	t.Helper()
	cut := new(atomic.Bool)
	db := sql.OpenDB(cuttingConnector{database: database.DB.Driver(), dsn: database.DSN, cut: cut, committed: committed})
	db.SetMaxOpenConns(database.DB.Stats().MaxOpenConnections)
	t.Cleanup(func() { _ = db.Close() })
	return db, cut
}

type cuttingConnector struct {
	database  driver.Driver
	dsn       string
	cut       *atomic.Bool
	committed bool
}

func (c cuttingConnector) Driver() driver.Driver { return c.database }

func (c cuttingConnector) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.database.Open(c.dsn)
	return &cuttingConn{Conn: conn, connector: c}, err
}

// cuttingConn offers database/sql so little that everything goes through Prepare and BeginTx.
type cuttingConn struct {
	driver.Conn
	connector cuttingConnector
	effect    bool // one was written since BeginTx
	broken    bool
}

func (c *cuttingConn) Prepare(query string) (driver.Stmt, error) {
	c.effect = c.effect || strings.Contains(query, "INTO effects")
	return c.Conn.Prepare(query)
}

func (c *cuttingConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, options)
	c.effect = false
	return cuttingTx{Tx: tx, conn: c}, err
}

func (c *cuttingConn) Ping(context.Context) error {
	if c.broken {
		return driver.ErrBadConn
	}
	return nil
}

type cuttingTx struct {
	driver.Tx
	conn *cuttingConn
}

func (x cuttingTx) Commit() error {
	if !x.conn.effect || !x.conn.connector.cut.CompareAndSwap(true, false) {
		return x.Tx.Commit()
	}
	x.conn.broken = true
	if x.conn.connector.committed {
		_ = x.Tx.Commit()
	} else {
		_ = x.Rollback() // as the server does with what it has not committed
	}
	return driver.ErrBadConn
}
