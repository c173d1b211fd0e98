package dialect

import (
	"database/sql"
	"database/sql/driver"
	"reflect"

	"github.com/lib/pq"
)

// WatchesTransactions reports whether the driver watches the context with which a transaction
// began, and interrupts a running statement when that context ends. Then a statement need not pass
// the same context, which would cost a goroutine. Of the drivers that Postbox is tested with, only
// lib/pq does so.
func WatchesTransactions(db *sql.DB) bool {
	_, watches := db.Driver().(*pq.Driver)
	return watches
}

// TxStatus is the driver's knowledge of the transaction on its connection, without asking the
// server.
type TxStatus int

const (
	// TxUnknown means that the driver does not expose the status, so only the next statement shows
	// it.
	TxUnknown TxStatus = iota
	// TxOpen means that the transaction can continue.
	TxOpen
	// TxFailed means that a statement of a PostgreSQL transaction failed, so it can only be rolled
	// back.
	TxFailed
	// TxEnded means that there is no transaction, because a statement or the server has committed
	// or rolled it back.
	TxEnded
	// TxLost means that the connection can no longer be used.
	TxLost
)

// raw is conn.Raw without its panic. If a transaction ends with its connection at this moment,
// database/sql takes the connection away while Raw reads it.
func raw(conn *sql.Conn, do func(driverConn any) error) (err error) {
	defer func() {
		if recover() != nil {
			err = sql.ErrConnDone
		}
	}()
	return conn.Raw(do)
}

// TxStatusOf reads the status of the transaction that runs on conn from the driver's own fields,
// which no interface of database/sql exposes: lib/pq, pgx and go-sql-driver/mysql all keep the last
// status from the server. If a driver has changed, or is hidden by another driver, the status is
// [TxUnknown].
func TxStatusOf(conn *sql.Conn) TxStatus {
	status := TxUnknown
	_ = raw(conn, func(driverConn any) error {
		status = txStatus(driverConn)
		return nil
	})
	return status
}

func txStatus(driverConn any) TxStatus {
	conn, name := knownConn(driverConn)
	switch name {
	case pqConn:
		if isLost(conn) {
			return TxLost
		}
		if status := conn.Elem().FieldByName("txnStatus"); status.IsValid() && status.Kind() == reflect.Uint8 {
			return postgresStatus(byte(status.Uint())) //nolint:gosec // bounded by what it is made of
		}
	case pgxConn:
		return pgxStatus(conn)
	case mysqlConn:
		if isLost(conn) {
			return TxLost
		}
		if status := conn.Elem().FieldByName("status"); status.IsValid() && status.Kind() == reflect.Uint16 {
			if status.Uint()&mysqlInTransaction != 0 {
				return TxOpen
			}
			return TxEnded
		}
	}
	return TxUnknown
}

// TellStatus does nothing on MySQL and MariaDB, but the answer says whether there is a transaction.
const TellStatus = `DO 0`

// MustTellStatus reports whether [TxStatusOf] may know only the status before the last statement,
// so that [TellStatus] must be executed first. MySQL's server says with each success whether there
// is a transaction. With an error it does not, even if it rolls back the whole transaction, as in a
// deadlock. So after a statement that has changed rows there is no need to ask. While rows are open
// it is impossible to ask; the commit closes them.
func MustTellStatus(conn *sql.Conn) bool {
	must := false
	_ = raw(conn, func(driverConn any) error {
		must = mustTellStatus(driverConn)
		return nil
	})
	return must
}

func mustTellStatus(driverConn any) bool {
	conn, name := knownConn(driverConn)
	if name != mysqlConn || isLost(conn) { // the driver calls a connection with open rows invalid, too
		return false
	}
	result := conn.Elem().FieldByName("result")
	if result.Kind() != reflect.Struct {
		return true
	}
	changed := result.FieldByName("affectedRows") // of each part of the last statement; 0 for one that failed
	if changed.Kind() != reflect.Slice || changed.Len() == 0 {
		return true
	}
	last := changed.Index(changed.Len() - 1)
	return !last.CanInt() || last.Int() <= 0
}

// The types of connections that are known.
const (
	pqConn    = "github.com/lib/pq.conn"
	pgxConn   = "github.com/jackc/pgx/v5/stdlib.Conn"
	mysqlConn = "github.com/go-sql-driver/mysql.mysqlConn"
)

// maxWrappers is the maximum depth to which drivers may wrap each other.
const maxWrappers = 5

// knownConn returns a connection of a known driver. It also finds one in a field of a driver that
// wraps it, for example for tracing.
func knownConn(driverConn any) (conn reflect.Value, name string) {
	conn = reflect.ValueOf(driverConn)
	for range maxWrappers {
		of := reflect.Indirect(conn)
		if of.Kind() != reflect.Struct {
			break
		}
		name = of.Type().PkgPath() + "." + of.Type().Name()
		if conn.Kind() == reflect.Pointer && (name == pqConn || name == pgxConn || name == mysqlConn) {
			return conn, name
		}
		conn = wrappedConn(of)
	}
	return reflect.Value{}, ""
}

// wrappedConn returns the connection in a field of a struct, or an invalid value.
func wrappedConn(of reflect.Value) reflect.Value {
	for i := range of.NumField() {
		if field := of.Field(i); field.Type() == reflect.TypeFor[driver.Conn]() {
			return field.Elem()
		}
	}
	return reflect.Value{}
}

// isLost asks the driver, unless another driver hides the connection in an unexported field.
func isLost(conn reflect.Value) bool {
	if !conn.CanInterface() {
		return false
	}
	validator, ok := conn.Interface().(driver.Validator)
	return ok && !validator.IsValid()
}

// mysqlInTransaction is SERVER_STATUS_IN_TRANS of the protocol. The server sends it with each
// success, and not with an error.
const mysqlInTransaction = 1

// postgresStatus translates the status that PostgreSQL sends after each statement.
func postgresStatus(status byte) TxStatus {
	switch status {
	case 'T':
		return TxOpen
	case 'E':
		return TxFailed
	case 'I':
		return TxEnded
	default:
		return TxUnknown
	}
}

// pgxStatus calls Conn().PgConn() of pgx's connection.
func pgxStatus(value reflect.Value) TxStatus {
	if !value.CanInterface() { // hidden by another driver, so no method can be called
		return TxUnknown
	}
	for _, name := range []string{"Conn", "PgConn"} {
		method := value.MethodByName(name)
		if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
			return TxUnknown
		}
		value = method.Call(nil)[0]
	}
	conn, ok := value.Interface().(interface {
		IsClosed() bool
		TxStatus() byte
	})
	switch {
	case !ok:
		return TxUnknown
	case conn.IsClosed():
		return TxLost
	default:
		return postgresStatus(conn.TxStatus())
	}
}
