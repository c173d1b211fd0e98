package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// SessionUnfit reports whether an error shows that a session cannot be used for longer than one
// statement: it cannot write, since its server was the primary, or is a standby under the name of
// the primary, or a statement has made the session read-only. A pool would keep it, since it
// answers. On SQLite the connection may be the database, and stays.
func SessionUnfit(err error) bool {
	said, found := findReport(err, anyKind)
	if !found || said.of == SQLite {
		return false
	}
	return said.readOnly() || said.state == postgresUnsupported
}

// postgresUnsupported is what a standby answers to BEGIN READ WRITE, which lib/pq sends. A session
// whose prepared statement no longer fits a table has the same code.
const postgresUnsupported = "0A000"

// Discard closes a connection, so that it does not go back to its pool.
func Discard(conn *sql.Conn) {
	_ = raw(conn, func(any) error { return driver.ErrBadConn })
}

// DiscardIdle closes the idle connections of a pool after an error of [SessionUnfit]: which of them
// had the error is not known, and those that were opened with it lead to the same server.
func DiscardIdle(ctx context.Context, db *sql.DB) {
	for free := db.Stats().Idle; free > 0; free-- {
		conn, err := db.Conn(ctx)
		if err != nil {
			return
		}
		Discard(conn)
		_ = conn.Close()
	}
}
