package spool

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Runnable reports whether the spool has a message that may be handled now, or is being handled. It
// does not count a message that waits for its time, for its next attempt, or, in an ordered spool,
// behind another message of its key. It runs a drainer's read of all lanes, so it costs as much.
func (s *Spool) Runnable(ctx context.Context, db *sql.DB, unordered bool) (bool, error) {
	id, err := s.Open(ctx, db)
	if err != nil {
		return false, err
	}
	params := dialect.FetchParams{Spool: id, PerLane: 1, Due: 1, PausedKeys: true, Unordered: unordered}
	for lane := range dialect.Lanes {
		params.Cursors = append(params.Cursors, dialect.Cursor{Lane: lane})
	}
	query := s.Statements.Fetch(params)
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return false, fmt.Errorf("read spool %q: %w", s.name, err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return false, fmt.Errorf("read spool %q: %w", s.name, err)
	}
	var state int
	targets := make([]any, len(columns))
	for i := range targets {
		targets[i] = new(any)
	}
	targets[0] = &state // see [dialect.Statements.Fetch]
	found := false
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return false, fmt.Errorf("read spool %q: %w", s.name, err)
		}
		found = found || state != dialect.StateMeta
	}
	return found, rows.Err()
}
