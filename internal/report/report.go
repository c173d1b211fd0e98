// Package report is what the context of a message of a queue carries for the error of its handler, since a Nack carries none.
package report

import (
	"context"
	"sync"
)

type key struct{}

// Report is where the error of one attempt is left. It is safe for concurrent use.
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

// Listen notes that an error of the handler would be left here. A nil report ignores it.
func (r *Report) Listen() {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = true
	}
}

// Leave leaves an error; the last one counts.
func (r *Report) Leave(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.heard = err, true
}

// Err returns the error that was left.
func (r *Report) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Heard says whether an error of the handler would have been left here.
func (r *Report) Heard() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}
