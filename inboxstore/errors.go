package inboxstore

import (
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/inbox"
)

// ErrTransactionLost is in the error of an attempt that failed because the handler broke its
// transaction. There are three cases. The connection was lost while the database was available, for
// example because of a time-out of the handler's own. A statement failed and the handler continued.
// Or the handler made the transaction read-only, or ended it. Then nothing is settled, and the
// attempt counts. Writes that a handler committed by itself stay. A queue repeats them, or its rule
// makes the message a dead letter; an inbox has committed its claim, too, and does not.
var ErrTransactionLost = inbox.ErrTransactionLost

// HandlerError is an error of a handler, such as the one given to [Store.Once], and not of the
// store. Its field Err is the error that the handler returned.
type HandlerError = inbox.HandlerError

// conflictError is a conflict with another transaction that [Store.Once] returns. It is no
// [HandlerError], so it is not counted.
type conflictError struct{ err error }

// Error returns the text of the error.
func (e conflictError) Error() string {
	return "inbox: conflict with another transaction: " + e.err.Error()
}

// Unwrap returns the database's error.
func (e conflictError) Unwrap() error {
	var ofHandler *HandlerError
	if errors.As(e.err, &ofHandler) {
		return ofHandler.Err
	}
	return e.err
}
