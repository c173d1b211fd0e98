package inboxstore

import (
	"errors"

	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// ErrNoTables is returned where the tables are missing.
var ErrNoTables = spool.ErrNoTables

// ErrTransactionLost is in the error of an attempt that failed because of what its handler did to its transaction: its
// connection was lost, for example to a time-out of the handler's own, while the database was there; a statement failed and the
// handler went on; or the handler made the transaction read-only, or ended it. Nothing is settled then, and the attempt counts. What a handler
// committed by itself stays, and is repeated with the next attempt: the rule of a queue can make the message a dead letter at once.
var ErrTransactionLost = inbox.ErrTransactionLost

// HandlerError is an error of a handler, such as the one given to [Store.Once], and not of the store. Its field Err is what the handler returned.
type HandlerError = inbox.HandlerError

// conflictError is a conflict that comes out of [Store.Once]. It is no [HandlerError], so it is not counted.
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
