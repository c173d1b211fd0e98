package counts

import (
	"context"
	"database/sql"
	"slices"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// Cap is the largest number that is counted exactly. Counting that many index entries takes a few milliseconds.
const Cap = 10_000

// capped are the numbers of a spool that a scan has found. None exceeds the cap by more than 1.
type capped struct {
	ready, waiting, due, parked, done int
	retrying, failing                 int // failing is a part of retrying
	letters, dead                     int // dead is a part of letters
}

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
		if err := rows.Scan(&id, &c.ready, &c.waiting, &c.due, &c.parked, &c.done, &c.retrying, &c.failing, &c.letters, &c.dead); err != nil {
			return err
		}
		found[id] = c
	}
	return rows.Err()
}

// group is the number of dead letters of the inboxes of a consumer.
type group struct {
	consumer string
	found    int
}

// scanInboxes counts the unresolved dead letters of inboxes by consumer. read is the number of letters that it has read.
func scanInboxes(ctx context.Context, db *sql.DB, statements *dialect.Statements, limit int) (groups []group, read int, err error) {
	rows, err := db.QueryContext(ctx, statements.InboxLetters, limit+1)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var g group
		var n int
		if err := rows.Scan(&g.consumer, &n, &g.found); err != nil {
			return nil, 0, err
		}
		read += n
		groups = append(groups, g)
	}
	return groups, read, rows.Err()
}
