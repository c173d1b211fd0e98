package counts

import (
	"context"
	"database/sql"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Cap is the largest number that is counted exactly. Counting that many index entries takes a few
// milliseconds.
const Cap = 10_000

// capped are the numbers of a spool that a scan has found. None exceeds the cap by more than 1.
type capped struct{ ready, waiting, due, parked, done, failing, dead int }

// scan counts the messages and dead letters of spools, those of each at one moment.
func scan(ctx context.Context, db *sql.DB, statements *dialect.Statements, spools []int64, limit int) (map[int64]capped, error) {
	found := make(map[int64]capped, len(spools))
	for _, query := range statements.CountFew(spools, limit+1) {
		if err := scanInto(ctx, db, query, found); err != nil {
			return nil, err
		}
	}
	for _, query := range statements.CountUpTo(Without(spools, found), limit+1) {
		if err := scanInto(ctx, db, query, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// Without returns the spools of which nothing was found.
func Without[T any](spools []int64, found map[int64]T) []int64 {
	return slices.DeleteFunc(slices.Clone(spools), func(id int64) bool { _, ok := found[id]; return ok })
}

func scanInto(ctx context.Context, db *sql.DB, query dialect.Query, found map[int64]capped) error {
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		var c capped
		if err := rows.Scan(&id, &c.ready, &c.waiting, &c.due, &c.parked, &c.done, &c.failing, &c.dead); err != nil {
			return err
		}
		found[id] = c
	}
	return rows.Err()
}

// scanInboxes counts the unresolved dead letters of inboxes by consumer.
func scanInboxes(
	ctx context.Context, db *sql.DB, statements *dialect.Statements, limit int,
) (inboxes []Inbox, err error) {
	rows, err := db.QueryContext(ctx, statements.InboxLetters, limit+1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var i Inbox
		if err := rows.Scan(&i.Consumer, &i.Dead); err != nil {
			return nil, err
		}
		if i.Dead > 0 {
			inboxes = append(inboxes, i)
		}
	}
	return inboxes, rows.Err()
}
