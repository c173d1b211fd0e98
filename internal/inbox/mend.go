package inbox

import (
	"context"
	"database/sql"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// mend gives up the connection of a handler that failed, if others could not write through it: the
// handler may have made the session read-only, for example. Otherwise the connection would go back
// to the pool, and the next user of the connection would fail. A statement that changes nothing
// shows this. It costs less than a new connection after each failure, and failures may be many at
// the same time.
//
// A connection to SQLite is made writable instead: it may hold the whole database in memory.
func (c *Core) mend(live context.Context, conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(live), askTimeout)
	defer cancel()
	if c.Statements.MakeWritable != "" {
		_, _ = conn.ExecContext(ctx, c.Statements.MakeWritable)
		return
	}
	_, err := conn.ExecContext(ctx, c.Statements.TryWrite)
	// If the role lacks the right to write there, the error has the kind Other. A session without
	// autocommit is in a transaction now.
	if c.Statements.Kind.Classify(err) != dialect.Other || dialect.TxStatusOf(conn) == dialect.TxOpen {
		dialect.Discard(conn)
	}
}
