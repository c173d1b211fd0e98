package spool

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// LockRows locks the rows of messages, and returns the ids of messages that another transaction has
// locked. A row that no longer exists is neither.
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

// LockAsRead locks messages that are as they were read and whose lane is held under their token. It
// returns the ids of the messages that it locked, and of those that another transaction has locked.
// The others are no longer this process's.
func (s *Spool) LockAsRead(ctx context.Context, tx *sql.Tx, id int64, messages []dialect.AsRead) (mine, locked map[int64]bool, err error) {
	if mine, err = SelectIDs(ctx, tx, s.Statements.LockAsRead(id, messages)); err != nil {
		return nil, nil, fmt.Errorf("lock messages of spool %q: %w", s.name, err)
	}
	others := slices.DeleteFunc(slices.Clone(messages), func(m dialect.AsRead) bool { return mine[m.ID] })
	if len(others) == 0 || !s.Statements.LocksRows() {
		return mine, nil, nil
	}
	if locked, err = SelectIDs(ctx, tx, s.Statements.StandingAsRead(id, others)); err != nil {
		return nil, nil, fmt.Errorf("find locked messages of spool %q: %w", s.name, err)
	}
	return mine, locked, nil
}

// SettleFailed settles messages that LockAsRead has locked. The error is [ErrLost] if not all of
// them were settled, which a trigger of the user can cause: then the transaction must be rolled
// back.
func (s *Spool) SettleFailed(ctx context.Context, tx *sql.Tx, id int64, process string, failed []dialect.Failed) error {
	queries := s.Statements.SettleFailed(id, process, failed)
	settled, err := s.settleFailed(ctx, tx, queries)
	if err == nil && int(settled) < len(failed) {
		err = ErrLost
	}
	if err != nil {
		return fmt.Errorf("settle failed messages of spool %q: %w", s.name, err)
	}
	return nil
}

func (s *Spool) settleFailed(ctx context.Context, tx *sql.Tx, queries dialect.FailedQueries) (settled int64, err error) {
	if together := queries.Together; together.Text != "" {
		err = tx.QueryRowContext(ctx, together.Text, together.Args...).Scan(&settled)
		return settled, err
	}
	changed := func(query dialect.Query) (rows int64) {
		if err == nil && query.Text != "" {
			rows, err = Affected(Directly(ctx, tx, query))
		}
		return rows
	}
	settled = changed(queries.Retry)
	changed(queries.Note)
	buried, removed := changed(queries.Bury), changed(queries.Remove)
	return settled + min(buried, removed), err
}

// Impatiently returns an Exec whose statements wait for a lock only for a short time, on servers
// that would continue to wait after the client has given up.
func (s *Spool) Impatiently(exec Exec) Exec {
	return func(ctx context.Context, tx *sql.Tx, query dialect.Query) (sql.Result, error) {
		return exec(ctx, tx, s.Statements.Impatiently(query))
	}
}

// ErrRowLocked means that a message's start was not counted, or that it was not removed in the
// transaction of its handler, because of a lock.
var ErrRowLocked = errors.New("another transaction has locked the message's row")
