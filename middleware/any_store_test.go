package middleware_test

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// anyStore is a store of a user's, which knows nothing of this module but the interfaces. One
// handler at a time uses it.
type anyStore struct{ failures map[inboxstore.Key]int }

func newAnyStore() anyStore { return anyStore{failures: map[inboxstore.Key]int{}} }

func (anyStore) Once(ctx context.Context, _ inboxstore.Key, fn func(ctx context.Context) error) (bool, error) {
	if err := fn(ctx); err != nil {
		return false, &inboxstore.HandlerError{Err: err}
	}
	return true, nil
}

func (s anyStore) RecordFailure(_ context.Context, key inboxstore.Key, cause error) (int, error) {
	_ = cause.Error() // as a store does that keeps it
	s.failures[key]++
	return s.failures[key], nil
}

func (anyStore) Bury(_ context.Context, _ inboxstore.Key, _ *message.Message, _ int, cause error) error {
	_ = cause.Error()
	return nil
}

func (anyStore) Defer(context.Context, string, inboxstore.Key, *message.Message) (bool, error) {
	return true, nil
}
