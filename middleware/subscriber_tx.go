package middleware

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// SubscriberTx is a middleware that shows Postbox the transaction in which a subscriber consumes a
// message, if Postbox does not find it by itself. Postbox finds that of watermill-sql v3, and
// cannot find that of v4. Add the middleware before the inbox, with the function that finds the
// transaction:
//
//	handler.AddMiddleware(middleware.SubscriberTx(wmsql.TxFromContext), inbox.Middleware)
//
// For a handler of package router, add it to the Watermill router before you add the handler. Then
// the inbox works in a savepoint of the transaction, and [postbox.TxFromContext] returns it. Prefer
// InboxConfig.OwnTransaction: a subscriber commits half a handler when it closes.
//
// It needs a *sql.Tx, or a struct that embeds one. A message with a transaction of another kind is
// an error, and one without passes through. SubscriberTx is safe for concurrent use.
func SubscriberTx[T any](find func(ctx context.Context) (tx T, found bool)) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			found, ok := find(ctx)
			if !ok {
				return h(msg)
			}
			tx, err := standardTx(found)
			if scope := txscope.From(ctx); err == nil && scope != nil && scope.Tx != nil && scope.Tx != tx {
				err = errors.New("middleware.SubscriberTx runs within an inbox and would hide its transaction: add middleware.SubscriberTx before the inbox")
			}
			if err != nil {
				(&brake{profile: retries.WithDefaults(postbox.RetryProfile{}, defaultMaxAttempts)}).ended(ctx, 1, err)
				return nil, err
			}
			defer msg.SetContext(ctx)
			msg.SetContext(postbox.ContextWithTx(ctx, tx))
			return h(msg)
		}
	}
}

// standardTx returns the transaction of database/sql that another one is, or wraps.
func standardTx(found any) (*sql.Tx, error) {
	tx, _ := txscope.Standard(found)
	if tx == nil {
		return nil, fmt.Errorf("the subscriber's transaction is a %T, and Postbox can only work in one of database/sql: "+
			"give the subscriber a *sql.DB, or leave middleware.SubscriberTx out and set InboxConfig.OwnTransaction", found)
	}
	return tx, nil
}

// watermillSQL is how Watermill's router names the subscribers of all versions of watermill-sql.
const watermillSQL = "sql.Subscriber"

var errUnseenTx = errors.New("the subscriber of watermill-sql consumes in a transaction that Postbox does not see, so what the handler writes there would not commit with the claim: " +
	"set InboxConfig.OwnTransaction, and write in the transaction of postbox.TxFromContext, or add middleware.SubscriberTx(sql.TxFromContext) before the inbox")

// joins returns an error if the subscriber consumes in a transaction that Postbox does not know. If
// the handler wrote there, a crash between the two commits would leave a claim without effect.
func (i *Inbox) joins(ctx context.Context) error {
	if message.SubscriberNameFromCtx(ctx) != watermillSQL {
		return nil
	}
	if _, seen := postbox.TxFromContext(ctx); !seen {
		return errUnseenTx
	}
	i.joined.Do(func() {
		i.logger.Error("An inbox works in the transaction of a subscriber of watermill-sql", errHalf, nil)
	})
	return nil
}

var errHalf = errors.New("that commits half a handler when the subscriber closes, and the rest is lost: set InboxConfig.OwnTransaction")
