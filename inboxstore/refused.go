package inboxstore

import (
	"errors"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// refusedEvery is the time between two log lines about statements that the database refuses.
const refusedEvery = time.Minute

// refused logs an error with which the database refuses a statement of the store, for lack of a
// right or of a table, or because a trigger raises an error. Its text names what is missing. The
// message is nacked, and that does not change until somebody acts. It returns the error.
func (s *Store) refused(err error) error {
	var ofHandler *HandlerError
	if err == nil || errors.As(err, &ofHandler) || !dialect.Coded(err) {
		return err
	}
	kind := s.core.Statements.Kind.Classify(err)
	if kind != dialect.Other && kind != dialect.MissingTable {
		return err
	}
	now := time.Now().UnixNano()
	if last := s.refusedAt.Load(); now-last >= int64(refusedEvery) && s.refusedAt.CompareAndSwap(last, now) {
		s.logger.Error("Postbox nacks messages, because the database refuses a statement of the inbox", err, nil)
	}
	return err
}
