package dialect

import (
	"context"
	"errors"
	"reflect"
	"sync"
)

// report is the content of a driver's error.
type report struct {
	of     Kind
	state  string // PostgreSQL: the SQLSTATE
	number int    // MySQL: the error number; SQLite: the result code
	// unconnected: no connection could be made, and no server has returned a code for that.
	unconnected bool
}

// anyKind selects the errors of all databases.
const anyKind Kind = ""

// driverError is a type of error of a driver. If it has no function that reads it, it means that no
// connection was made.
type driverError struct {
	of   Kind
	read func(err error, fields reflect.Value) (report, bool)
}

// driverErrors identifies error types by the path of their package and their name, because
// importing the drivers would add all of them to every user's program. A driver that wraps another
// one, for example for tracing, returns the errors of the inner driver or wraps them.
var driverErrors = map[string]driverError{
	"github.com/lib/pq.Error":                     {PostgreSQL, readState},
	"github.com/jackc/pgx/v5/pgconn.PgError":      {PostgreSQL, readState},
	"github.com/jackc/pgx/v5/pgconn.ConnectError": {PostgreSQL, nil},
	"github.com/jackc/pgconn.PgError":             {PostgreSQL, readState}, // pgx v4
	"github.com/jackc/pgconn.connectError":        {PostgreSQL, nil},
	"github.com/go-sql-driver/mysql.MySQLError":   {MySQL, readNumber},
	"modernc.org/sqlite.Error":                    {SQLite, readCode},
	"github.com/glebarez/go-sqlite.Error":         {SQLite, readCode}, // a fork of it
	"github.com/mattn/go-sqlite3.Error":           {SQLite, readExtendedCode},
}

// knownTypes caches the meaning of an error type: a [driverError], or nil for all others.
var knownTypes sync.Map // reflect.Type → *driverError

func driverErrorOf(t reflect.Type) *driverError {
	if known, ok := knownTypes.Load(t); ok {
		return known.(*driverError) //nolint:forcetypeassert // nothing else is stored
	}
	of := t
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	var found *driverError
	if driver, ok := driverErrors[of.PkgPath()+"."+of.Name()]; ok && of.Kind() == reflect.Struct {
		found = &driver
	}
	knownTypes.Store(t, found)
	return found
}

// findReport returns the content of the first driver error in the tree of errors, if the driver is
// one for this kind of database.
func findReport(err error, kind Kind) (report, bool) {
	for err != nil {
		driver := driverErrorOf(reflect.TypeOf(err))
		if driver != nil && (kind == anyKind || kind == driver.of) {
			if said, ok := driver.report(err); ok {
				return said, true
			}
		}
		switch wrapper := err.(type) { //nolint:errorlint // this is the walk through the tree
		case interface{ Unwrap() error }:
			err = wrapper.Unwrap()
		case interface{ Unwrap() []error }: // errors.Join, or several %w
			for _, inner := range wrapper.Unwrap() {
				if said, ok := findReport(inner, kind); ok {
					return said, true
				}
			}
			return report{}, false
		default:
			return report{}, false
		}
	}
	return report{}, false
}

// report reads an error. A failed connection is not reported if the server that refused it has
// given a code, which is found further in, or if the caller's context ended first.
func (d *driverError) report(err error) (report, bool) {
	if d.read == nil {
		if said, refused := findReport(errors.Unwrap(err), d.of); refused {
			return said, true
		}
		return report{of: d.of, unconnected: true}, !ended(err)
	}
	fields := reflect.Indirect(reflect.ValueOf(err))
	if !fields.IsValid() { // a nil pointer
		return report{}, false
	}
	said, ok := d.read(err, fields)
	said.of = d.of
	return said, ok
}

func readState(_ error, fields reflect.Value) (report, bool) {
	field := fields.FieldByName("Code")
	if !field.IsValid() || field.Kind() != reflect.String {
		return report{}, false
	}
	return report{state: field.String()}, true
}

func readNumber(_ error, fields reflect.Value) (report, bool) {
	field := fields.FieldByName("Number")
	if !field.IsValid() || !field.CanUint() {
		return report{}, false
	}
	return report{number: int(field.Uint())}, true //nolint:gosec // the field has 16 bits
}

func readCode(err error, _ reflect.Value) (report, bool) {
	coded, ok := err.(interface{ Code() int })
	if !ok {
		return report{}, false
	}
	return report{number: coded.Code()}, true
}

func readExtendedCode(_ error, fields reflect.Value) (report, bool) {
	field := fields.FieldByName("ExtendedCode")
	if !field.IsValid() || !field.CanInt() {
		return report{}, false
	}
	return report{number: int(field.Int())}, true
}

// ended reports whether an error comes from the end of a context.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
