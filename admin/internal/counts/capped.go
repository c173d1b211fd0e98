package counts

import (
	"context"
	"database/sql"
	"slices"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Cap is the largest number that is counted exactly. Counting that many index entries takes a few
// milliseconds.
const Cap = 10_000

// capped are the numbers of a spool that a scan has found. None exceeds the cap by more than 1.
type capped struct{ ready, waiting, due, parked, done, failing, dead, lately int }

// scan counts the messages and dead letters of spools, those of each at one moment.
func scan(ctx context.Context, db *sql.DB, statements *operatorsql.Statements, spools []int64, limit int) (map[int64]capped, error) {
	found := make(map[int64]capped, len(spools))
	return found, OfEach(ctx, db, statements.Kind, spools, limit+1, statements.CountFew, statements.CountUpTo, func(scan spool.Scan) (id int64, err error) {
		var c capped
		err = scan(&id, &c.ready, &c.waiting, &c.due, &c.parked, &c.done, &c.failing, &c.dead, &c.lately)
		found[id] = c
		return id, err
	})
}

// Planned reads with settings of PostgreSQL's planner, in a transaction that a statement sets.
func Planned(ctx context.Context, db *sql.DB, kind dialect.Kind, settings string, read func(from spool.Querier) error) error {
	if kind != dialect.PostgreSQL {
		return read(db)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, settings); err != nil {
		return err
	}
	return read(tx)
}

// OfEach reads a row of each spool: what few has, then what all has of the others. PostgreSQL would
// compile a statement about many spools each time, which takes seconds.
func OfEach(
	ctx context.Context, db *sql.DB, kind dialect.Kind, spools []int64, limit int, few, all func(spools []int64, limit int) []dialect.Query,
	read func(scan spool.Scan) (id int64, err error),
) error {
	found := make(map[int64]bool, len(spools))
	return Planned(ctx, db, kind, "SET LOCAL jit = off", func(from spool.Querier) error {
		for _, ask := range []func([]int64, int) []dialect.Query{few, all} {
			for _, query := range ask(slices.DeleteFunc(slices.Clone(spools), func(id int64) bool { return found[id] }), limit) {
				err := spool.Each(ctx, from, query, func(scan spool.Scan) error {
					id, err := read(scan)
					found[id] = true
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// scanInboxes counts the unresolved dead letters of inboxes by consumer.
func scanInboxes(
	ctx context.Context, db *sql.DB, statements *operatorsql.Statements, limit int,
) (inboxes []Inbox, err error) {
	query := dialect.Query{Text: statements.InboxLetters, Args: []any{limit + 1}}
	err = spool.Each(ctx, db, query, func(scan spool.Scan) error {
		var i Inbox
		err := scan(&i.Consumer, &i.Dead, &i.Lately)
		if i.Dead > 0 {
			inboxes = append(inboxes, i)
		}
		return err
	})
	return inboxes, err
}
