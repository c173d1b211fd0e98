package dialect

import (
	"errors"
	"net/url"
)

// ErrorKind says what an error of a database asks for.
type ErrorKind int

const (
	// Other errors are not about concurrency or the connection.
	Other ErrorKind = iota
	// Conflict errors go away when the transaction is run again: serialization failures, deadlocks, a busy file.
	Conflict
	// Unavailable errors mean that the server is away, is starting or shutting down, or is full.
	Unavailable
	// MissingTable errors of a statement of ours mean that the migrations have not run.
	MissingTable
)

// Classify tells the kind of an error of this kind of database by its code, never by its text, which depends on the
// server's language. Codes are read from the error types of this database's drivers alone: an application may have errors
// with a code or a state of their own, or errors of another database that it uses.
func (k Kind) Classify(err error) ErrorKind {
	said, found := findReport(err, k)
	if !found {
		return Other
	}
	return said.kind()
}

// kind tells the kind of the error.
func (r report) kind() ErrorKind {
	switch {
	case r.unconnected:
		return Unavailable
	case r.of == PostgreSQL:
		return classifyState(r.state)
	case r.of == MySQL:
		return classifyMySQL(r.number)
	default:
		return classifySQLite(r.number)
	}
}

// classifyState reads the SQLSTATE of PostgreSQL.
func classifyState(state string) ErrorKind {
	switch state {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock not available
		return Conflict
	case "42P01": // undefined table
		return MissingTable
	}
	if len(state) != 5 {
		return Other
	}
	switch state[:2] {
	case "08", "53", "57", "58": // connection, resources (disk full, too many connections), operator (shutdown, starting), system
		if state == "57014" { // query cancelled: by us
			return Other
		}
		return Unavailable
	}
	return Other
}

// classifyMySQL reads the error number of MySQL and MariaDB.
func classifyMySQL(number int) ErrorKind {
	switch number {
	case 1205, 1213, 1020, 3572: // lock wait timeout, deadlock, record changed, NOWAIT
		return Conflict
	case 1146: // no such table
		return MissingTable
	case 1021, 1040, 1053, 1077, 1079, 1114, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1290, 1836, 1927, 2002, 2003, 2006, 2013:
		// disk full, too many connections, shutting down, table full, connection aborted, read-only server, gone away
		return Unavailable
	}
	return Other
}

// classifySQLite reads the result code of SQLite, of which the low byte is the primary one.
func classifySQLite(code int) ErrorKind {
	switch code & 0xff {
	case 1: // SQLITE_ERROR: a fault in the statement; ours have none but that their tables are not there
		return MissingTable
	case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
		return Conflict
	case 10, 13, 14: // SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN
		return Unavailable
	}
	return Other
}

var errAddress = errors.New("the address of the database is no URL: check its port, and write %xx for the special characters of a password")

// HideAddress takes the text out of an error of the driver that has the whole address of the database in it, password
// and all: lib/pq reads an address that is a URL when it connects, and cites one that cannot be read.
func HideAddress(err error) error {
	var address *url.Error
	if errors.As(err, &address) && address.Op == "parse" {
		return errAddress
	}
	return err
}

// The functions below go by the type of the error alone, whatever the kind of the database. They are asked of what a statement of
// ours returned, which no application has touched, also by code that has a handle on the database and was not told its kind.

// RolledBack says whether an error of COMMIT is the server's word that nothing was committed. An error without a
// code comes from the connection, and a server that is shutting down may have committed before it said so.
func RolledBack(err error) bool {
	said, found := findReport(err, anyKind)
	return found && !said.unconnected && said.kind() != Unavailable
}

// LacksTable says whether an error is of the kind [MissingTable].
func LacksTable(err error) bool {
	said, found := findReport(err, anyKind)
	return found && said.kind() == MissingTable
}

// Coded says whether an error carries a code of the server's.
func Coded(err error) bool {
	said, found := findReport(err, anyKind)
	return found && !said.unconnected
}
