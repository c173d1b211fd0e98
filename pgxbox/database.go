package pgxbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	postbox "github.com/postbox-go/watermill-postbox"
)

// Database returns the description of the database of a pool, for each constructor of Postbox. Set
// its other fields, such as Schema or Metrics, as you need them. All calls for a pool share one
// *sql.DB, which works on the connections of the pool and keeps none for itself. Postbox knows the
// limit of the pool, so it leaves a connection free to renew its leases while handlers run.
//
// It prepares no statements by itself: pgx does, unless its exec mode forbids it. So the same
// description works behind a pooler in transaction mode, with a pool as docs/poolers.md says.
//
// Close of the *sql.DB is optional: it ends a goroutine of database/sql, and leaves the pool open.
// Call it before the Close of the pool, after all that uses the description has been closed.
func Database(pool *pgxpool.Pool) postbox.Database {
	return postbox.Database{DB: handleOf(pool), Dialect: postbox.PostgreSQL, DisablePreparedStatements: true}
}

// handles are the handles of all pools. A transaction of one handle is foreign to another one, and
// each would count only its own handlers, so a pool has only one.
var handles = struct {
	sync.Mutex
	of map[*pgxpool.Pool]*sql.DB
}{of: map[*pgxpool.Pool]*sql.DB{}}

func handleOf(pool *pgxpool.Pool) *sql.DB {
	if pool == nil {
		return nil // which each constructor refuses
	}
	handles.Lock()
	defer handles.Unlock()
	db, known := handles.of[pool]
	if !known {
		db = sql.OpenDB(connector{stdlib.GetPoolConnector(pool), pool})
		db.SetMaxOpenConns(int(pool.Config().MaxConns))
		db.SetMaxIdleConns(0) // it would keep one that was opened for a caller who has gone meanwhile
		handles.of[pool] = db
	}
	return db
}

// connector takes the connections of a handle from the pool.
type connector struct {
	driver.Connector

	pool *pgxpool.Pool
}

// Connect takes a connection.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	taken, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: taken.(*stdlib.Conn), Inner: taken}, nil
}

// Close is called by Close of the handle.
func (c connector) Close() error {
	handles.Lock()
	defer handles.Unlock()
	delete(handles.of, c.pool)
	return nil
}
