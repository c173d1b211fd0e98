package counts

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

// walk counts a part of a table, page by page.
type walk struct {
	spool   int64
	count   Count
	letters Letters

	// next counts the next page, and reports whether it was the last one.
	next func(ctx context.Context, db *sql.DB, statements *dialect.Statements, page int) (last bool, err error)
	// store puts the result into a snapshot.
	store func(s *Snapshot)
}

// step counts a page.
func (w *walk) step(ctx context.Context, db *sql.DB, statements *dialect.Statements, page int) (last bool, err error) {
	started := time.Now()
	last, err = w.next(ctx, db, statements, page)
	w.count.Cost += time.Since(started).Microseconds()
	return last, err
}

func newReadyWalk(spool int64) *walk {
	w := &walk{spool: spool}
	w.next = w.alongLanes(dialect.StateReady)
	w.store = func(s *Snapshot) { s.Ready[spool] = w.count }
	return w
}

func newWaitingWalk(spool int64) *walk {
	w := &walk{spool: spool}
	w.next = w.alongLanes(dialect.StateScheduled, dialect.StateRetrying)
	w.store = func(s *Snapshot) { s.Waiting[spool] = w.count }
	return w
}

// pageOf counts a page of the messages of a lane, and returns the last id.
type pageOf func(ctx context.Context, db *sql.DB, statements *dialect.Statements, p dialect.LanePage) (n int, last int64, err error)

// alongLanes counts the messages of some states, lane by lane. A page of few messages goes on in
// the next lane.
func (w *walk) alongLanes(states ...int) func(context.Context, *sql.DB, *dialect.Statements, int) (bool, error) {
	page := dialect.LanePage{Spool: w.spool}
	count := pageOf(w.waiting)
	if states[0] == dialect.StateReady {
		count = w.ready
	}
	return func(ctx context.Context, db *sql.DB, statements *dialect.Statements, limit int) (bool, error) {
		for left := limit; left > 0 && len(states) > 0; {
			page.State, page.Limit = states[0], left
			n, last, err := count(ctx, db, statements, page)
			if err != nil {
				return false, err
			}
			w.count.N += n
			if page.After = last; n < left {
				page.After = 0
				page.Lane++
			}
			if page.Lane == dialect.Lanes {
				page.Lane, states = 0, states[1:]
			}
			left -= n
		}
		return len(states) == 0, nil
	}
}

func (w *walk) ready(ctx context.Context, db *sql.DB, statements *dialect.Statements, p dialect.LanePage) (n int, last int64, err error) {
	query := statements.ReadyPage(p)
	err = db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&n, &last)
	return n, last, err
}

func (w *walk) waiting(ctx context.Context, db *sql.DB, statements *dialect.Statements, p dialect.LanePage) (n int, last int64, err error) {
	query, found := statements.WaitingPage(p), Count{}
	err = db.QueryRowContext(ctx, query.Text, query.Args...).Scan(&n, &last, &found.Due, &found.Failing, &found.Parked)
	w.count.Due += found.Due
	w.count.Failing += found.Failing
	w.count.Parked += found.Parked
	return n, last, err
}

func newHistoryWalk(spool int64) *walk {
	w, after := &walk{spool: spool}, int64(0)
	w.next = func(ctx context.Context, db *sql.DB, statements *dialect.Statements, limit int) (bool, error) {
		until, n := int64(dialect.Never), 0
		end := statements.EndOfPage(spool, after, limit)
		err := db.QueryRowContext(ctx, end.Text, end.Args...).Scan(&until)
		last := errors.Is(err, sql.ErrNoRows)
		if err == nil || last {
			page := statements.HistoryPage(spool, after, until)
			err = db.QueryRowContext(ctx, page.Text, page.Args...).Scan(&n)
		}
		w.count.N += n
		after = until
		return last, err
	}
	w.store = func(s *Snapshot) { s.Done[spool] = w.count }
	return w
}

// newLettersWalk counts the dead letters of all spools and inboxes, since no index has those that are not resolved.
func newLettersWalk() *walk {
	w, after := &walk{letters: Letters{Spools: map[int64]int{}, Consumers: map[string]int{}}}, int64(0)
	w.next = func(ctx context.Context, db *sql.DB, statements *dialect.Statements, limit int) (bool, error) {
		n, last, err := w.lettersPage(ctx, db, statements.LettersPage(after, limit))
		after = last
		return n < limit, err
	}
	w.store = func(s *Snapshot) {
		w.letters.At, w.letters.Cost = w.count.At, w.count.Cost
		s.Letters = w.letters
	}
	return w
}

func (w *walk) lettersPage(ctx context.Context, db *sql.DB, query dialect.Query) (n int, last int64, err error) {
	rows, err := db.QueryContext(ctx, query.Text, query.Args...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var origin, in, unresolved int
		var spool, highest int64
		var consumer string
		if err := rows.Scan(&origin, &spool, &consumer, &in, &highest, &unresolved); err != nil {
			return 0, 0, err
		}
		n, last = n+in, max(last, highest)
		switch {
		case unresolved == 0:
		case origin == dialect.OriginInbox:
			w.letters.Consumers[consumer] += unresolved
		default:
			w.letters.Spools[spool] += unresolved
		}
	}
	return n, last, rows.Err()
}
