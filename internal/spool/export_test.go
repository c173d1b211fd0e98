package spool

import (
	"context"
	"time"
)

// IDAge is how old an id may be that is used.
const IDAge = idAge

// Looking says whether a search is under way.
func (f *Finder) Looking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looking
}

// Age makes what is known of the spool older.
func (s *Spool) Age(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt = s.readAt.Add(-by)
}

// AskUnaware asks for the identity of the place like a caller that has found none, shortly before
// another one read it.
func (p *Place) AskUnaware(ctx context.Context) (identity string, err error) { return p.ask(ctx, "") }
