package txscope

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
)

// Executor executes statements in a transaction. Publishing needs nothing else.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ErrOther is returned for work in the transaction of another library that needs more than an
// [Executor].
var ErrOther = error(NoTxError("the context carries a transaction of another library, in which messages can be published, but neither InTx nor an inbox can work: " +
	"let that library begin its transactions on a *sql.Tx (for pgx, use pgxbox), or remove its transaction from the context with postbox.ContextWithTx(ctx, nil) to begin a separate one"))

// Of returns the scope of a transaction that its user ends: a [sql.Tx], a struct that embeds one,
// or a transaction of another library. For nil, of any type, it returns the scope without a
// transaction.
func Of(executor Executor) *Scope {
	if tx, found := Standard(executor); found {
		return New(tx)
	}
	return &Scope{other: executor}
}

// Standard returns the transaction of database/sql that the argument is or embeds, also through
// several levels, as those of sqlx, bun and watermill-sql do. It bypasses the methods of the
// wrapper: bun's method puts arguments into the text of the statement in its own way. The
// transaction is nil if the argument is nil. Standard reports false for a transaction of another
// library.
func Standard(found any) (tx *sql.Tx, standard bool) {
	for {
		if tx, is := found.(*sql.Tx); is {
			return tx, true
		}
		value := reflect.ValueOf(found)
		kind := value.Kind()
		if nilable := kind == reflect.Pointer || kind == reflect.Func || kind == reflect.Map; kind == reflect.Invalid || nilable && value.IsNil() {
			return nil, true
		}
		embedded, err := embeddedTx(reflect.Indirect(value))
		if err != nil {
			return nil, true
		}
		if embedded == nil {
			return nil, false
		}
		found = embedded
	}
}

var errNilInside = errors.New("an embedded pointer is nil")

// embeddedTx returns the value that a struct embeds under the name Tx, or nil. Each of these
// libraries names its transaction type Tx.
func embeddedTx(wrapper reflect.Value) (any, error) {
	if wrapper.Kind() != reflect.Struct {
		return nil, nil
	}
	field, found := wrapper.Type().FieldByName("Tx")
	if !found || !field.Anonymous || !field.IsExported() {
		return nil, nil
	}
	value, err := wrapper.FieldByIndexErr(field.Index)
	if err != nil || value.Kind() == reflect.Interface && value.IsNil() {
		return nil, errNilInside
	}
	return value.Interface(), nil
}

// Other returns the scope's transaction of another library, or nil.
func (s *Scope) Other() Executor {
	if s == nil {
		return nil
	}
	return s.other
}
