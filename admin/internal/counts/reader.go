package counts

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/due"
	"github.com/postbox-go/watermill-postbox/internal/spool"
)

// Numbers are those of a spool, counted at one moment. None exceeds the limit by more than 1.
type Numbers struct {
	Pending, Due, Failing, Parked, Done int
	Dead, DeadLately                    int // among the latest letters, as many as the limit

	DueAge    time.Duration // for how long the oldest due message has been due; 0 without one
	OldestAge time.Duration // how long ago the oldest pending message was written; 0 without one
}

// Inbox is the number of unresolved dead letters of a consumer's inboxes, among the latest letters
// of all inboxes.
type Inbox struct {
	Consumer string
	Dead     int
	Lately   int // those of the last ten minutes
}

// Reader reads numbers. It is safe for concurrent use.
type Reader struct {
	db         *sql.DB
	statements *operatorsql.Statements
	limit      int
}

// NewReader returns a reader that counts up to a limit, usually [Cap].
func NewReader(db *sql.DB, statements *operatorsql.Statements, limit int) *Reader {
	return &Reader{db: db, statements: statements, limit: limit}
}

// Spools returns the numbers of some spools. It executes two statements, and on MySQL and MariaDB
// a few more for many spools. Without spools it asks nothing.
func (r *Reader) Spools(ctx context.Context, ids []int64) (map[int64]Numbers, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	ages, err := r.ages(ctx)
	if err != nil {
		return nil, err
	}
	numbers := make(map[int64]Numbers, len(ids))
	found, err := scan(ctx, r.db, r.statements, ids, r.limit)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		a := ages[id]
		if a == nil { // it was registered after they were read
			a = &dialect.Ages{}
		}
		numbers[id] = found[id].numbers(r.limit, a)
	}
	return numbers, nil
}

// numbers adds up what was found.
func (c capped) numbers(limit int, a *dialect.Ages) Numbers {
	n := c.due
	if at := due.Ready(a); at == a.Ready || at <= a.Clock { // else all that is ready waits for its batch
		n += c.ready
	}
	return Numbers{
		Pending: min(c.ready+c.waiting, limit+1), Due: min(n, limit+1),
		Failing: c.failing, Parked: c.parked, Done: c.done, Dead: c.dead, DeadLately: c.lately,
		DueAge: span(a.Since(due.Since(a))), OldestAge: span(a.Since(a.Oldest())),
	}
}

// Inboxes returns the numbers of all consumers that have unresolved dead letters, by name.
func (r *Reader) Inboxes(ctx context.Context) ([]Inbox, error) {
	inboxes, err := scanInboxes(ctx, r.db, r.statements, r.limit)
	slices.SortFunc(inboxes, func(a, b Inbox) int { return cmp.Compare(a.Consumer, b.Consumer) })
	return inboxes, err
}

// inOrder makes PostgreSQL read along the index that has the order. With statistics of few messages
// it sorted all that wait, for each lane.
const inOrder = "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)"

// ages returns the times of all spools.
func (r *Reader) ages(ctx context.Context) (map[int64]*dialect.Ages, error) {
	ages := map[int64]*dialect.Ages{}
	return ages, Planned(ctx, r.db, r.statements.Kind, inOrder, func(from spool.Querier) error {
		return spool.Each(ctx, from, dialect.Query{Text: r.statements.Ages}, func(scan spool.Scan) error {
			var id int64
			a := &dialect.Ages{}
			err := scan(append([]any{&id, new(sql.NullString)}, a.Columns()...)...)
			ages[id] = a
			return err
		})
	})
}

// span is a time in microseconds.
func span(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
