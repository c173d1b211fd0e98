package dialect

import (
	"database/sql"
	"database/sql/driver"
	"reflect"

	"github.com/lib/pq"
)

// WatchesTransactions tells whether the driver watches the context that a transaction began with, and interrupts whatever
// runs in it when that context ends. Then a statement need not bring the same context along, which would cost a goroutine.
// Of the drivers that Postbox is tested with, only lib/pq watches.
func WatchesTransactions(db *sql.DB) bool {
	_, watches := db.Driver().(*pq.Driver)
	return watches
}

// TellStatus does nothing. The driver of MySQL reads of its answer whether there is a transaction, which an error does not tell.
const TellStatus = `DO 0`

// MustAskStatus says whether [TxStatusOf] knows only what it was before the last error, so that [TellStatus] must be executed before.
func MustAskStatus(db *sql.DB) bool {
	kind, known := driverKind(db)
	return known && kind == MySQL
}

// TxStatus is what a driver knows of the transaction on its connection, without asking the server.
type TxStatus int

const (
	// TxUnknown is the answer of a driver that does not tell: then only the next statement shows it.
	TxUnknown TxStatus = iota
	// TxOpen is a transaction that can go on.
	TxOpen
	// TxFailed is a transaction of PostgreSQL in which a statement failed: it can only be rolled back.
	TxFailed
	// TxEnded means that there is no transaction: it was committed or rolled back by a statement, or by the server.
	TxEnded
	// TxLost means that the connection cannot be used any more.
	TxLost
)

// TxStatusOf reads the status of the transaction that runs on conn from the driver's own fields, which no interface of
// database/sql offers: lib/pq, pgx and go-sql-driver/mysql all keep what the server said last. A driver that is wrapped by
// another one, or that has changed, gives [TxUnknown].
func TxStatusOf(conn *sql.Conn) TxStatus {
	status := TxUnknown
	_ = conn.Raw(func(driverConn any) error {
		status = txStatus(driverConn)
		return nil
	})
	return status
}

func txStatus(driverConn any) TxStatus {
	value := reflect.ValueOf(driverConn)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return TxUnknown
	}
	switch of := value.Elem().Type(); of.PkgPath() + "." + of.Name() {
	case "github.com/lib/pq.conn":
		if isLost(driverConn) {
			return TxLost
		}
		if status := value.Elem().FieldByName("txnStatus"); status.IsValid() && status.Kind() == reflect.Uint8 {
			return postgresStatus(byte(status.Uint())) //nolint:gosec // bounded by what it is made of
		}
	case "github.com/jackc/pgx/v5/stdlib.Conn":
		return pgxStatus(value)
	case "github.com/go-sql-driver/mysql.mysqlConn":
		if isLost(driverConn) {
			return TxLost
		}
		if status := value.Elem().FieldByName("status"); status.IsValid() && status.Kind() == reflect.Uint16 {
			if status.Uint()&mysqlInTransaction != 0 {
				return TxOpen
			}
			return TxEnded
		}
	}
	return TxUnknown
}

func isLost(driverConn any) bool {
	validator, ok := driverConn.(driver.Validator)
	return ok && !validator.IsValid()
}

// mysqlInTransaction is SERVER_STATUS_IN_TRANS of the protocol. The server sends it with each success, and not with an error.
const mysqlInTransaction = 1

// postgresStatus reads what PostgreSQL says after each statement.
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
