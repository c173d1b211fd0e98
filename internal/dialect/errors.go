package dialect

import (
	"errors"
	"net/url"
)

// ErrorKind says how to react to an error of a database.
type ErrorKind int

const (
	// Other errors are not about concurrency or the connection.
	Other ErrorKind = iota
	// Conflict errors disappear when the transaction is run again: serialization failures,
	// deadlocks, a busy file.
	Conflict
	// Unavailable errors mean that the server is unreachable, is starting or shutting down, is
	// full, or is read-only.
	Unavailable
	// MissingTable errors of Postbox's statements mean that the migrations have not run.
	MissingTable
	// Interrupted errors mean that the server ended a statement: the context of the statement
	// ended, it took longer than a limit of the server's (statement_timeout, max_statement_time),
	// or an operator cancelled it.
	Interrupted
)

// Classify determines the kind of an error of this kind of database by its code, never by its text,
// which depends on the server's language. It reads codes only from the error types of this
// database's drivers. An application may have its own errors with a code or a state, or errors of
// another database that it uses.
func (k Kind) Classify(err error) ErrorKind {
	said, found := findReport(err, k)
	if !found {
		return Other
	}
	return said.kind()
}

// kind returns the kind of the error.
func (r report) kind() ErrorKind {
	switch {
	case r.unconnected, r.readOnly():
		return Unavailable
	case r.of == PostgreSQL:
		return classifyState(r.state)
	case r.of == MySQL:
		return classifyMySQL(r.number)
	default:
		return classifySQLite(r.number)
	}
}

// The codes of a statement that is not allowed to write.
const (
	postgresReadOnly = "25006" // the server is a standby, or the transaction is read-only

	mysqlReadOnlyOption      = 1290 // the server runs with --read-only, or another option forbids the statement
	mysqlReadOnlyTransaction = 1792
	mysqlReadOnlyMode        = 1836

	sqliteReadOnly = 8
)

const (
	mysqlDiskFull  = 1021
	mysqlTableFull = 1114 // InnoDB: the disk is; MEMORY: the table is
)

const (
	mysqlNoNode   = 1047 // a node of Galera that is not connected to the others
	mysqlAtCommit = 1180 // an error during COMMIT: on Galera the other nodes may have committed
)

const mysqlInterrupted = 1317

// ReadOnly reports whether an error means that writes are not allowed; its kind is then
// [Unavailable].
func (k Kind) ReadOnly(err error) bool {
	said, found := findReport(err, k)
	return found && said.readOnly()
}

func (r report) readOnly() bool {
	switch r.of {
	case MySQL:
		return r.number == mysqlReadOnlyOption || r.number == mysqlReadOnlyTransaction || r.number == mysqlReadOnlyMode
	case SQLite:
		return r.number&0xff == sqliteReadOnly
	default:
		return r.state == postgresReadOnly
	}
}

// Aborted reports whether a statement was refused because an earlier one of its transaction had
// failed.
func (k Kind) Aborted(err error) bool {
	said, found := findReport(err, k)
	return found && said.of == PostgreSQL && said.state == "25P02"
}

// Killed reports whether a statement was interrupted as MySQL does it when its connection is
// killed: MariaDB and PostgreSQL have other errors for that. It is the same as that of a statement
// that was killed alone, after which the connection lives.
func (k Kind) Killed(err error) bool {
	said, found := findReport(err, k)
	return found && said.of == MySQL && said.number == mysqlInterrupted
}

// Exhausted reports whether an error means that disk or memory is full or broken; its kind is
// [Unavailable]. Either the server has no more room, or one statement needs too much.
func (k Kind) Exhausted(err error) bool {
	said, found := findReport(err, k)
	switch {
	case !found || said.unconnected:
		return false
	case k == PostgreSQL:
		return said.kind() == Unavailable && (said.state == "58030" || said.state[:2] == "53" && said.state != "53300")
	case k == MySQL:
		return said.number == mysqlDiskFull || said.number == mysqlTableFull
	default:
		return said.kind() == Unavailable && !said.readOnly()
	}
}

// classifyState reads the SQLSTATE of PostgreSQL.
func classifyState(state string) ErrorKind {
	switch state {
	case "40001", "40P01", "55P03": // serialization failure, deadlock, lock not available
		return Conflict
	case "42P01": // undefined table
		return MissingTable
	case "57014": // query cancelled
		return Interrupted
	case "53400", "58P01", "58P02": // a limit such as temp_file_limit, a file that is not there, or is: the statement's fault
		return Other
	}
	if len(state) != 5 {
		return Other
	}
	switch state[:2] {
	case "08", "53", "57", "58": // connection, resources (disk full, too many connections), operator (shutdown, starting), system
		return Unavailable
	}
	return Other
}

// classifyMySQL reads the error number of MySQL and MariaDB.
func classifyMySQL(number int) ErrorKind {
	switch number {
	case 1205, 1213, 1020, 3572, 1467: // lock wait timeout, deadlock, record changed, NOWAIT, no id: a deadlock about their counter
		return Conflict
	case 1146: // no such table
		return MissingTable
	case mysqlDiskFull, mysqlTableFull, mysqlNoNode, mysqlAtCommit, 1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1927, 2002, 2003, 2006, 2013:
		// and: too many connections, shutting down, connection aborted, gone away
		return Unavailable
	case mysqlInterrupted, 1969, 3024: // and: max_statement_time of MariaDB, max_execution_time of MySQL
		return Interrupted
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
	case 7, 10, 13, 14: // SQLITE_NOMEM, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN
		return Unavailable
	case 9: // SQLITE_INTERRUPT
		return Interrupted
	}
	return Other
}

var errAddress = errors.New("the address of the database is not a URL: check its port, and write %xx for the special characters of a password")

// HideAddress removes the text of a driver's error that contains the whole address of the database,
// including the password. lib/pq parses an address that is a URL when it connects, and quotes an
// invalid one.
func HideAddress(err error) error {
	var address *url.Error
	if errors.As(err, &address) && address.Op == "parse" {
		return errAddress
	}
	return err
}

// The functions below use only the type of the error, whatever the kind of the database. They are
// for errors of Postbox's own statements, which no application has touched. Code that has a handle
// on the database but does not know its kind may also use them.

// RolledBack reports whether an error of COMMIT proves that nothing was committed, because the
// server says so. An error without a code comes from the connection. A server that is shutting down
// may have committed before it reported the error.
func RolledBack(err error) bool {
	said, found := findReport(err, anyKind)
	return found && !said.unconnected && said.kind() != Unavailable
}

// EndedByConflict reports whether going back to a savepoint failed because the conflict in err had
// ended the whole transaction, and so the savepoint, as a deadlock does on MySQL and MariaDB.
func EndedByConflict(err, backErr error) bool {
	said, found := findReport(backErr, MySQL)
	return found && said.number == 1305 && MySQL.Classify(err) == Conflict // no such savepoint
}

// NothingToCommit reports whether an error of COMMIT means that there is no transaction. Database
// servers do not treat that as an error.
func NothingToCommit(err error) bool {
	said, found := findReport(err, anyKind)
	return found && said.of == SQLite && said.number == 1 // SQLITE_ERROR, which a COMMIT has for nothing else
}

// AppliedBefore reports whether the error of a migration means that it was applied before.
func AppliedBefore(err error) bool {
	said, found := findReport(err, PostgreSQL)
	return found && said.state == "22012" // division by zero
}

// LacksRight reports whether the server refused a statement because the role lacks a right.
func LacksRight(err error) bool {
	said, found := findReport(err, anyKind)
	switch {
	case !found:
		return false
	case said.of == MySQL:
		return said.number == 1142 || said.number == 1143 || said.number == 1044 // on a table, a column, a database
	default:
		return said.of == PostgreSQL && said.state == "42501"
	}
}

// LacksTable reports whether an error is of the kind [MissingTable].
func LacksTable(err error) bool {
	said, found := findReport(err, anyKind)
	return found && said.kind() == MissingTable
}

// LacksColumn reports whether a table lacks a column that a statement names, as a table of an
// earlier version does.
func LacksColumn(err error) bool {
	said, found := findReport(err, anyKind)
	return found && (said.state == "42703" || said.of == MySQL && said.number == 1054)
}

// Coded reports whether an error carries a code of the server.
func Coded(err error) bool {
	said, found := findReport(err, anyKind)
	return found && !said.unconnected
}

// WaitedForLock reports whether a server ended a statement because it waited too long for a row.
// MySQL and MariaDB say so.
func WaitedForLock(err error) bool {
	said, found := findReport(err, MySQL)
	return found && said.number == 1205
}
