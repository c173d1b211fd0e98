package txscope

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
)

// Executor executes statements in a transaction. It is all that publishing needs.
type Executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ErrOther is returned for work in the transaction of another library that needs more of it than an [Executor] has.
var ErrOther = errors.New("the context carries a transaction of another library, in which messages can be published, but neither InTx nor an inbox can work: " +
	"let that library begin its transactions on a *sql.Tx, or take its transaction out of the context with postbox.ContextWithTx(ctx, nil) to have another one beside it")

// Of returns the scope of a transaction that its user ends: a [sql.Tx], a struct that embeds one, or a transaction of another library.
// With nil it is the scope of no transaction.
func Of(executor Executor) *Scope {
	if tx, found := Standard(executor); found {
		return New(tx)
	}
	return &Scope{other: executor}
}

// Standard returns the transaction of database/sql that another one is, or that it has in a field Tx, as those of sqlx, bun and watermill-sql have. Their own methods are
// passed by: bun's puts arguments into the text of the statement in its own way. It reports false where there is no such field; the transaction may be nil.
func Standard(found any) (tx *sql.Tx, standard bool) {
	if found == nil {
		return nil, true
	}
	if tx, is := found.(*sql.Tx); is {
		return tx, true
	}
	wrapper := reflect.Indirect(reflect.ValueOf(found))
	if wrapper.Kind() != reflect.Struct {
		return nil, false
	}
	field := wrapper.FieldByName("Tx")
	if !field.IsValid() || !field.CanInterface() || field.Type() != reflect.TypeFor[*sql.Tx]() {
		return nil, false
	}
	tx, standard = field.Interface().(*sql.Tx)
	return tx, standard
}

// Other returns the transaction of another library that the scope is of, or nil.
func (s *Scope) Other() Executor {
	if s == nil {
		return nil
	}
	return s.other
}
