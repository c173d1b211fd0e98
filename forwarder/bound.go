package forwarder

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/given"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// Bind returns a publisher that writes through tx, whatever transaction the context carries. It is
// for code that passes transactions around by itself, and costs nothing to make. The transaction
// may be one of another library: see [postbox.Executor].
//
// With a *sql.DB or a *sql.Conn, or a type that embeds one, Publish returns
// [postbox.ErrNoTransaction], because each statement would be committed by itself. It returns that
// error for nil, too. If you begin transactions by a statement, such as BEGIN on a *sql.Conn, pass
// postbox.ExecFunc(conn.ExecContext).
//
// A transaction of another library must be in the database of the publisher. Postbox can check that
// only for a *sql.Tx, or for a type that embeds one.
func (p *Publisher) Bind(tx postbox.Executor) message.Publisher { return boundPublisher{p: p, tx: tx} }

// boundPublisher writes through one transaction.
type boundPublisher struct {
	p  *Publisher
	tx postbox.Executor
}

// Publish writes the messages through the transaction.
func (b boundPublisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	if err := checkNil(topic, messages); err != nil {
		return err
	}
	return b.p.publishThrough(messages[0].Context(), b.tx, topic, messages)
}

// Close does nothing: the transaction and the publisher belong to others.
func (b boundPublisher) Close() error { return nil }

// publishInOther writes messages whose contexts carry a transaction of another library, which must
// be the same one.
func (p *Publisher) publishInOther(ctx context.Context, topic string, messages []*message.Message) error {
	tx := txscope.From(ctx).Other()
	for _, msg := range messages[1:] {
		if !same(tx, txscope.From(msg.Context()).Other()) { //nolint:contextcheck // a message brings its own
			return fmt.Errorf("publish to topic %.300q: %w", topic, errDifferent)
		}
	}
	return p.publishThrough(ctx, tx, topic, messages)
}

// checkNil returns an error where a message is nil.
func checkNil(topic string, messages []*message.Message) error {
	if i := slices.Index(messages, nil); i >= 0 {
		return fmt.Errorf("publish to topic %.300q: %w", topic, postbox.Permanent(fmt.Errorf("message %d of %d is nil", i+1, len(messages))))
	}
	return nil
}

// same says whether two executors are the same. Executors that Go cannot compare count as
// different.
func same(a, b postbox.Executor) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// publishThrough writes the messages through a transaction of whose commit Postbox is not told.
func (p *Publisher) publishThrough(ctx context.Context, tx postbox.Executor, topic string, messages []*message.Message) error {
	through := tx
	if standard, is := txscope.Standard(tx); is && standard != nil {
		through = standard
	} else if is || !mayBeTx(tx) {
		return fmt.Errorf("publish to topic %.300q: %w", topic, txscope.NoTxError(fmt.Sprintf("a %T is not a transaction, or it is nil (a value with a method BeginTx, Stats or Raw counts as a pool or a connection): "+
			"give Bind or postbox.ContextWithTx the transaction that will commit the message, or its method through postbox.ExecFunc; "+
			"to publish without a transaction, set AllowAutocommit and call the Publisher itself", tx)))
	}
	if err := p.write(ctx, through, topic, messages); err != nil {
		return err
	}
	p.spool.Wake() // the commit is near: poll more often
	return nil
}

// mayBeTx says whether an executor of another library can be a transaction. A pool, a connection, a
// nil pointer, and a struct that embeds one of these as its executor cannot.
func mayBeTx(executor postbox.Executor) bool {
	if given.Nil(executor) {
		return false
	}
	_, isPool := executor.(interface{ Stats() sql.DBStats })
	_, isConn := executor.(interface{ Raw(func(any) error) error })
	begins := reflect.ValueOf(executor).MethodByName("BeginTx").IsValid() // as pools of other libraries do
	if isPool || isConn || begins {
		return false
	}
	return !embedsNil(reflect.Indirect(reflect.ValueOf(executor)))
}

// embedsNil says whether a value is a struct that embeds a nil executor: each call would panic.
func embedsNil(wrapper reflect.Value) bool {
	if wrapper.Kind() != reflect.Struct {
		return false
	}
	for i := range wrapper.NumField() {
		field := wrapper.Field(i)
		nilable := field.Kind() == reflect.Pointer || field.Kind() == reflect.Interface
		if wrapper.Type().Field(i).Anonymous && nilable && field.IsNil() && field.Type().Implements(reflect.TypeFor[postbox.Executor]()) {
			return true
		}
	}
	return false
}
