// Package report holds the error of a handler in the context of a queue's message, since a Nack
// carries none.
package report

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/txscope"
)

// ErrNacked is the error of a handler that reported none.
var ErrNacked = errors.New("the handler nacked the message")

type key struct{}

// Report receives the error of one attempt. It is safe for concurrent use.
type Report struct {
	mu    sync.Mutex
	err   error
	heard bool
}

// New returns a report, and a context that carries it.
func New(ctx context.Context) (context.Context, *Report) {
	r := &Report{}
	return context.WithValue(ctx, key{}, r), r
}

// From returns the report that ctx carries, or nil.
func From(ctx context.Context) *Report {
	r, _ := ctx.Value(key{}).(*Report)
	return r
}

// Fail stores the error of a handler where the queue that handed out the message finds it. It also
// stores it with the transaction that ctx carries. It reports false if the message does not come
// from a queue.
func Fail(ctx context.Context, err error) bool {
	err = spool.Recovered(func() error { return err })
	r := From(ctx)
	if r != nil {
		r.leave(err)
	}
	txscope.From(ctx).Fail(err)
	return r != nil
}

// Listen records that an error of the handler would be stored here. A nil report ignores it.
func (r *Report) Listen() {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = true
	}
}

// leave stores an error; the last one counts.
func (r *Report) leave(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.heard = err, true
}

// Cause returns the stored error, or [ErrNacked]. It is for a message that was nacked.
func (r *Report) Cause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.err, ErrNacked)
}

// Heard reports whether an error of the handler would have been stored here.
func (r *Report) Heard() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}
