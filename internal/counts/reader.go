package counts

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/due"
)

// Numbers are those of a spool. Pending, the letters and the history were counted at one moment, as far as they are exact.
type Numbers struct {
	Pending, Due, Failing, Parked, Dead, Done Number

	CountedAge time.Duration // age of the oldest count among them; 0 if none is [Counted]
	DueAge     time.Duration // for how long the oldest due message has been due; 0 without one
	OldestAge  time.Duration // how long ago the oldest pending message was written; 0 without one
}

// Inbox is the number of unresolved dead letters of a consumer's inboxes.
type Inbox struct {
	Consumer   string
	Dead       Number
	CountedAge time.Duration // 0 unless Dead is [Counted]
}

// Reader reads numbers. It is safe for concurrent use.
type Reader struct {
	db         *sql.DB
	statements *dialect.Statements
	limit      int
}

// NewReader returns a reader that counts up to a limit, usually [Cap].
func NewReader(db *sql.DB, statements *dialect.Statements, limit int) *Reader {
	return &Reader{db: db, statements: statements, limit: limit}
}

// Histories returns the numbers of some spools that have only a history. Without such spools it asks nothing.
func (r *Reader) Histories(ctx context.Context, ids []int64) (map[int64]Numbers, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return r.Spools(ctx, ids)
}

// Spools returns the numbers of some spools. It executes three statements, and on MySQL and MariaDB
// a few more for many spools.
func (r *Reader) Spools(ctx context.Context, ids []int64) (map[int64]Numbers, error) {
	ages, err := r.ages(ctx)
	if err != nil {
		return nil, err
	}
	snapshot, err := stored(ctx, r.db, r.statements)
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
		numbers[id] = found[id].numbers(r.limit, snapshot, id, a)
	}
	return numbers, nil
}

// numbers combines what was found with what was counted earlier.
func (c capped) numbers(limit int, s Snapshot, id int64, a *dialect.Ages) Numbers {
	l := &ladder{limit: limit}
	ready, waiting, done := s.Ready[id], s.Waiting[id], s.Done[id]
	letters, lettersAt := s.Letters.ofSpool(id)
	countReady := l.choose(c.ready, c.ready, ready.N, ready.At)
	countDue := l.choose(c.due, c.due, waiting.Due, waiting.At)
	if at := due.Ready(a); at == a.Ready || at <= a.Clock { // otherwise all that is ready waits for its batch
		countDue = countReady.plus(countDue)
	}
	n := Numbers{
		Pending: countReady.plus(l.choose(c.waiting, c.waiting, waiting.N, waiting.At)),
		Due:     countDue,
		Failing: l.choose(c.retrying, c.failing, waiting.Failing, waiting.At),
		Parked:  l.choose(c.parked, c.parked, waiting.Parked, waiting.At),
		Done:    l.choose(c.done, c.done, done.N, done.At),
		Dead:    l.choose(c.letters, c.dead, letters, lettersAt),
		DueAge:  span(a.Since(due.Since(a))), OldestAge: span(a.Since(a.Oldest())),
	}
	if l.oldest != 0 {
		n.CountedAge = span(a.Since(l.oldest))
	}
	return n
}

// Inboxes returns the numbers of all consumers that have unresolved dead letters, by name.
func (r *Reader) Inboxes(ctx context.Context) ([]Inbox, error) {
	groups, read, err := scanInboxes(ctx, r.db, r.statements, r.limit)
	if err != nil {
		return nil, err
	}
	found, letters, now := map[string]int{}, Letters{}, dialect.Ages{}
	for _, g := range groups {
		found[g.consumer] = g.found
	}
	if read > r.limit {
		snapshot, err := stored(ctx, r.db, r.statements)
		if err != nil {
			return nil, err
		}
		if err := r.db.QueryRowContext(ctx, r.statements.Clock).Scan(&now.Clock); err != nil {
			return nil, err
		}
		letters = snapshot.Letters
	}
	for consumer := range letters.Consumers {
		found[consumer] += 0 // also those of which the scan has found none
	}
	inboxes := make([]Inbox, 0, len(found))
	for consumer, n := range found {
		l := &ladder{limit: r.limit}
		earlier, at := letters.ofConsumer(consumer)
		inbox := Inbox{Consumer: consumer, Dead: l.choose(read, n, earlier, at)}
		if l.oldest != 0 {
			inbox.CountedAge = span(now.Since(l.oldest))
		}
		if inbox.Dead.N > 0 || inbox.Dead.Accuracy == AtLeast {
			inboxes = append(inboxes, inbox)
		}
	}
	slices.SortFunc(inboxes, func(a, b Inbox) int { return cmp.Compare(a.Consumer, b.Consumer) })
	return inboxes, nil
}

// ages returns the times of all spools.
func (r *Reader) ages(ctx context.Context) (map[int64]*dialect.Ages, error) {
	rows, err := r.db.QueryContext(ctx, r.statements.Ages)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	ages := map[int64]*dialect.Ages{}
	for rows.Next() {
		var id int64
		var name sql.NullString
		a := &dialect.Ages{}
		if err := rows.Scan(append([]any{&id, &name}, a.Columns()...)...); err != nil {
			return nil, err
		}
		ages[id] = a
	}
	return ages, rows.Err()
}

// span is a time in microseconds.
func span(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
