package admin

import (
	"context"
	"time"
)

const (
	// bulkPage is the number of things that an action on many lists at once, and the most that one
	// of its transactions changes.
	bulkPage = 100
	// bulkBytes bounds the payloads and metadata of a transaction, unless a single message has
	// more.
	bulkBytes = 4 << 20
	// finishTimeout is how long a transaction may go on after the context of its action has ended.
	finishTimeout = 5 * time.Second
)

// left returns how many things an action may still change, or a page of them if it has no limit
// (0).
func left(most, done int) int {
	if most == 0 {
		return bulkPage
	}
	return most - done
}

// inParts divides a page into parts that one transaction each changes, and calls part for one after
// the other. It ends where no more may be changed, and with the error of ctx between two parts.
func inParts[T any](ctx context.Context, page []T, size func(T) int, left func() int, part func([]T) error) error {
	for len(page) > 0 && left() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, bytes := 1, size(page[0])
		for n < min(len(page), left()) && bytes+size(page[n]) <= bulkBytes {
			bytes += size(page[n])
			n++
		}
		if err := part(page[:n]); err != nil {
			return err
		}
		page = page[n:]
	}
	return nil
}

// finishing returns a context for a transaction that may go on for a while after ctx has ended, so
// that its outcome is known.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	finish, cancel := context.WithCancel(context.WithoutCancel(ctx))
	release := context.AfterFunc(ctx, func() {
		grace := time.AfterFunc(finishTimeout, cancel)
		context.AfterFunc(finish, func() { grace.Stop() })
	})
	return finish, func() {
		release()
		cancel()
	}
}
