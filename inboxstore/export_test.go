package inboxstore

import (
	"context"
	"database/sql"
)

// SecondCommit is how many wait before a second commit begins.
const SecondCommit = secondCommit

// Line tells a test how many deliveries to a queue wait for the next commit, and whether one is under way, which it does
// not know after Close.
func (s *Store) Line(queue string) (waiting int, committing bool) {
	in, err := s.ingest(queue)
	if err != nil {
		return 0, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.line), in.committing > 0
}

// TransactUnguarded runs a handler in a transaction whose last statement does not notice that there is none any more, as on MySQL.
func (s *Store) TransactUnguarded(ctx context.Context, handle func(ctx context.Context) error, settle func(ctx context.Context, tx *sql.Tx) error) error {
	return s.transact(ctx, ctx, work{handle: func(ctx context.Context, _ func() error) error { return handle(ctx) }, settle: settle})
}

// MeetAnotherServer lets the store believe that its database has been another one until now.
func (s *Store) MeetAnotherServer() {
	another := "another one"
	s.server.Store(&another)
}
