package dialect

import (
	"database/sql"
	"database/sql/driver"
	"net"
	"reflect"
)

// PoolOf returns the pool of the user behind a handle of the engine (see package handle), or the pool itself.
func PoolOf(db *sql.DB) *sql.DB {
	if over, is := db.Driver().(interface{ Pool() *sql.DB }); is {
		return over.Pool()
	}
	return db
}

// Discard closes a connection, so that it does not go back to its pool.
func Discard(conn *sql.Conn) {
	_ = conn.Raw(func(driverConn any) error {
		if borrowed, is := driverConn.(interface{ Discard() }); is {
			borrowed.Discard()
		}
		return driver.ErrBadConn // a pool closes a connection that says so
	})
}

// SessionUnfit reports whether an error shows that a session cannot be used for longer than one statement: it cannot
// write, since its server was the primary, or is a standby under the name of the primary, or a statement has made the
// session read-only. A pool would keep it, since it answers. On SQLite the connection may be the database, and stays.
func SessionUnfit(err error) bool {
	said, found := findReport(err, anyKind)
	if !found || said.of == SQLite {
		return false
	}
	return said.readOnly() || said.state == postgresUnsupported
}

// postgresUnsupported is what a standby answers to BEGIN READ WRITE, which lib/pq sends. A session whose prepared
// statement no longer fits a table has the same code.
const postgresUnsupported = "0A000"

// SetIsolation returns a statement that sets the level of a transaction; empty for the default.
func SetIsolation(level sql.IsolationLevel) string {
	if level == sql.LevelDefault {
		return ""
	}
	return "SET TRANSACTION ISOLATION LEVEL " + level.String()
}

// DeafSocket returns the socket of a connection whose driver goes on reading when the context of a statement has ended:
// lib/pq only asks the server to cancel the statement, and a server that has disappeared never answers. It is nil for
// other drivers. Closing it is all that ends such a read. The driver does not give it out, so it is read from its field.
func DeafSocket(of driver.Conn) net.Conn {
	conn, name := knownConn(of)
	if name != pqConn {
		return nil
	}
	field := conn.Elem().FieldByName("c")
	if !field.IsValid() || !field.CanAddr() || field.Type() != reflect.TypeFor[net.Conn]() {
		return nil
	}
	socket, _ := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem().Interface().(net.Conn)
	return socket
}
