package storetest

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/inboxstore"
)

// Store is what the suite tests. It is safe for concurrent use. Close can be called twice.
type Store interface {
	Inbox
	Queues
	io.Closer
}

// Inbox is what middleware.Inbox needs of a store.
type Inbox interface {
	// Once claims the key, runs fn and makes the claim last if fn returns nil. It returns false, and does not run fn,
	// where an earlier claim lasts; it waits for the end of one that is under way. An error of fn, and nothing else,
	// comes back as [inboxstore.HandlerError]; then, and after a panic, the key is free again.
	//
	// The context that fn gets has the values of ctx and lives on for the close timeout after ctx has ended.
	Once(ctx context.Context, key inboxstore.Key, fn func(ctx context.Context) error) (fresh bool, err error)
	// RecordFailure keeps a failed attempt and returns how many there are of this key. It works with a context that
	// has ended.
	RecordFailure(ctx context.Context, key inboxstore.Key, cause error) (attempts int, err error)
	// Bury moves a message to the dead letters and claims its key for good, or does nothing where a claim lasts. It
	// works with a context that has ended.
	Bury(ctx context.Context, key inboxstore.Key, msg *message.Message, attempts int, cause error) error
}

// Queues is what middleware.Defer needs of a store.
type Queues interface {
	// Defer claims the key and keeps the message in a queue, both or neither. It returns false where a claim lasts.
	Defer(ctx context.Context, queue string, key inboxstore.Key, msg *message.Message) (fresh bool, err error)
}
