package dialect

import (
	"errors"
	"net/url"
	"reflect"
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

// Classify tells the kind of a database error by its code, never by its text, which depends on the
// server's language. It knows the codes through small interfaces and so needs no driver.
func Classify(err error) ErrorKind {
	var state interface{ SQLState() string } // lib/pq, pgx
	if errors.As(err, &state) {
		return classifyState(state.SQLState())
	}
	var code interface{ Code() int } // modernc.org/sqlite
	if errors.As(err, &code) {
		return classifySQLite(code.Code())
	}
	if number, ok := mysqlNumber(err); ok {
		return classifyMySQL(number)
	}
	return Other
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
func classifyMySQL(number uint16) ErrorKind {
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

// mysqlNumber finds the error number of go-sql-driver's MySQLError in the chain. The driver offers no method
// for it, and importing the driver would hand it to every user, so its Number field is read by reflection.
func mysqlNumber(err error) (uint16, bool) {
	value := reflect.ValueOf(err)
	if value.Kind() == reflect.Pointer && value.Elem().Kind() == reflect.Struct {
		if number := value.Elem().FieldByName("Number"); number.IsValid() && number.Kind() == reflect.Uint16 {
			return uint16(number.Uint()), true //nolint:gosec // the field has 16 bits
		}
	}
	switch wrapper := err.(type) { //nolint:errorlint // this is the walk through the chain
	case interface{ Unwrap() error }:
		return mysqlNumber(wrapper.Unwrap())
	case interface{ Unwrap() []error }: // errors.Join, or several %w
		for _, inner := range wrapper.Unwrap() {
			if number, ok := mysqlNumber(inner); ok {
				return number, true
			}
		}
	}
	return 0, false
}

// RolledBack says whether an error of COMMIT is the server's word that nothing was committed. An error without a
// code comes from the connection, and a server that is shutting down may have committed before it said so.
func RolledBack(err error) bool { return Coded(err) && Classify(err) != Unavailable }

// Coded says whether an error carries a code of the server's.
func Coded(err error) bool {
	var state interface{ SQLState() string }
	var code interface{ Code() int }
	_, numbered := mysqlNumber(err)
	return errors.As(err, &state) || errors.As(err, &code) || numbered
}
