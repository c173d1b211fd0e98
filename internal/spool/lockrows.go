package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// LockRows locks the rows of messages, and returns the ids of messages that another transaction has locked. A row that
// no longer exists is neither.
func (s *Spool) LockRows(ctx context.Context, tx *sql.Tx, id int64, refs []dialect.Ref) (locked map[int64]bool, err error) {
	if !s.Statements.LocksRows() {
		return nil, nil
	}
	mine, err := SelectIDs(ctx, tx, s.Statements.Lock(id, refs))
	if err != nil {
		return nil, fmt.Errorf("lock messages of spool %q: %w", s.name, err)
	}
	others := slices.DeleteFunc(slices.Clone(refs), func(r dialect.Ref) bool { return mine[r.ID] })
	if len(others) == 0 {
		return nil, nil
	}
	if locked, err = SelectIDs(ctx, tx, s.Statements.Find(id, others)); err != nil {
		return nil, fmt.Errorf("find locked messages of spool %q: %w", s.name, err)
	}
	return locked, nil
}

// Impatiently returns an Exec whose statements wait for a lock only for a short time, on servers that would continue to
// wait after the client has given up.
func (s *Spool) Impatiently(exec Exec) Exec {
	return func(ctx context.Context, tx *sql.Tx, query dialect.Query) (sql.Result, error) {
		return exec(ctx, tx, s.Statements.Impatiently(query))
	}
}

// SelectIDs returns the ids that a query selects.
func SelectIDs(ctx context.Context, db Querier, query dialect.Query) (map[int64]bool, error) {
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	ids := map[int64]bool{}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids[id] = true
	}
	return ids, rows.Err()
}

// ErrRowLocked means that a message's start was not counted, or that it was not removed in the transaction of its
// handler, because of a lock.
var ErrRowLocked = errors.New("another transaction has locked the message's row")
