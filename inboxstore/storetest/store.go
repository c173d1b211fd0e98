package storetest

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// Store is the interface under test. It is safe for concurrent use. Close can be called twice.
type Store interface {
	Inbox
	Queues
	io.Closer
}

// Inbox is the part of a store that middleware.Inbox needs.
type Inbox interface {
	// Once claims the key, runs fn and commits the claim if fn returns nil. If the key has a
	// committed claim, it returns false and does not run fn. If a claim is in progress, it waits
	// for its end. It returns an error of fn, and only that, as [inboxstore.HandlerError]. Then,
	// and after a panic, the key is free again.
	//
	// The context that fn gets has the values of ctx and stays alive for the close timeout after
	// ctx has ended.
	Once(ctx context.Context, key inboxstore.Key, fn func(ctx context.Context) error) (fresh bool, err error)
	// RecordFailure keeps a failed attempt and returns the number of failed attempts of this key.
	// It also works with a context that has ended.
	RecordFailure(ctx context.Context, key inboxstore.Key, cause error) (attempts int, err error)
	// Bury moves a message to the dead letters and claims its key for good. It does nothing if the
	// key has a committed claim. It also works with a context that has ended.
	Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error
}

// Queues is the part of a store that middleware.Defer needs.
type Queues interface {
	// Defer claims the key and keeps the message in a queue, both or neither. It returns false if
	// the key has a committed claim.
	Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error)
	// Bury is that of [Inbox]: Defer's messages that can never be stored become dead letters.
	Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error
}
