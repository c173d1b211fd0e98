package counts

import (
	"bytes"
	"context"
	"database/sql"
	"time"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
)

const (
	// share is how many times as long as a count took it is kept, so that counting takes less than 1% of a core. It applies between
	// leastAge of a counter and mostAge.
	share   = 150
	mostAge = 15 * time.Minute
	// smallShare and smallAges: while all numbers are below this part of the limit, the counter looks only after that many times the least age. So a
	// database with little to count costs nearly nothing.
	smallShare = 10
	smallAges  = 5
	// pageShare spreads a count over time, for databases that are busy or do one thing at a time: a page takes a
	// twentieth of the time.
	pageShare = 20
	// pageSize is the number of rows that one statement reads. That takes some milliseconds, also where it keeps a
	// writer waiting, and no snapshot of the database is held longer.
	pageSize = 20_000
)

// Counter renews the snapshot, in steps of one statement. It belongs to one goroutine.
//
// The counters of several processes are not coordinated here: the maintenance task does that. A counter that stops in the
// middle of a count leaves the earlier one, and the next counter begins anew.
type Counter struct {
	db         *sql.DB
	statements *dialect.Statements
	limit      int
	page       int
	leastAge   time.Duration

	walks    []*walk // of this round, that are not finished
	snapshot Snapshot
	stored   []byte // the form that the snapshot was read from, or stored in
	small    bool   // all numbers were small at the last look
}

// NewCounter returns a counter of what is above a limit, usually [Cap]. It looks at all spools each leastAge, and counts none
// of them more often.
func NewCounter(db *sql.DB, statements *dialect.Statements, limit int, leastAge time.Duration) *Counter {
	return &Counter{db: db, statements: statements, limit: limit, page: pageSize, leastAge: leastAge}
}

// Step executes the next statements. It gets the snapshot that is stored, and returns the one to store, and the pause
// before the next step.
func (c *Counter) Step(ctx context.Context, stored []byte) (renewed []byte, pause time.Duration, err error) {
	started := time.Now()
	if len(c.walks) == 0 || !bytes.Equal(stored, c.stored) { // another process may have counted meanwhile
		c.stored, c.snapshot = stored, Decode(stored)
		err = c.plan(ctx)
		if pause = c.age(time.Since(started)); c.small {
			pause = max(pause, smallAges*c.leastAge)
		}
	} else {
		err = c.walk(ctx)
		pause = c.leastAge
	}
	if err != nil {
		c.walks = nil
		return stored, 0, err
	}
	if len(c.walks) > 0 {
		pause = min((pageShare-1)*time.Since(started), c.leastAge)
	}
	if renewed, err = c.snapshot.Encode(); err != nil {
		return stored, 0, err
	}
	c.stored = renewed
	return renewed, pause, nil
}

// walk counts a page of what is counted now.
func (c *Counter) walk(ctx context.Context) error {
	w := c.walks[0]
	last, err := w.step(ctx, c.db, c.statements, c.page)
	if err == nil && last {
		w.store(&c.snapshot)
		c.walks = c.walks[1:]
	}
	return err
}

// age is how long a count of a cost stays.
func (c *Counter) age(cost time.Duration) time.Duration {
	return min(max(share*cost, c.leastAge), max(mostAge, c.leastAge))
}

// plan finds what is above the limit, forgets what is not, and begins to count what was not counted for long enough.
func (c *Counter) plan(ctx context.Context) error {
	c.walks = nil
	_, inboxLetters, err := scanInboxes(ctx, c.db, c.statements, c.limit)
	if err != nil {
		return err
	}
	ids, err := c.spools(ctx)
	if err != nil {
		return err
	}
	all, err := scan(ctx, c.db, c.statements, ids, c.limit)
	if err != nil {
		return err
	}
	most, letters := inboxLetters, inboxLetters
	for _, n := range all {
		letters = max(letters, n.letters)
		most = max(most, n.ready, n.waiting, n.done, n.letters)
	}
	known := c.snapshot
	c.snapshot = Snapshot{Ready: map[int64]Count{}, Waiting: map[int64]Count{}, Done: map[int64]Count{}}
	if c.small = most <= c.limit/smallShare; most <= c.limit {
		return nil
	}
	var clock int64
	if err := c.db.QueryRowContext(ctx, c.statements.Clock).Scan(&clock); err != nil {
		return err
	}
	for _, id := range ids {
		c.carry(c.snapshot.Ready, known.Ready, all[id].ready, clock, newReadyWalk(id))
		c.carry(c.snapshot.Waiting, known.Waiting, all[id].waiting, clock, newWaitingWalk(id))
		c.carry(c.snapshot.Done, known.Done, all[id].done, clock, newHistoryWalk(id))
	}
	if letters > c.limit {
		if c.snapshot.Letters = known.Letters; c.due(known.Letters.At, known.Letters.Cost, clock) {
			c.begin(newLettersWalk(), clock)
		}
	}
	return nil
}

// carry keeps an earlier count, and begins a new one, if there is still more than the limit.
func (c *Counter) carry(next, earlier map[int64]Count, found int, clock int64, w *walk) {
	if found <= c.limit {
		return
	}
	known, ok := earlier[w.spool]
	if ok {
		next[w.spool] = known
	}
	if c.due(known.At, known.Cost, clock) {
		c.begin(w, clock)
	}
}

func (c *Counter) begin(w *walk, clock int64) {
	w.count.At = clock
	c.walks = append(c.walks, w)
}

// due reports whether an earlier count, or none, is to be replaced.
func (c *Counter) due(at, cost, clock int64) bool {
	age := c.age(time.Duration(cost) * time.Microsecond).Microseconds()
	return at == 0 || clock-at >= age || clock < at
}

func (c *Counter) spools(ctx context.Context) (ids []int64, err error) {
	rows, err := c.db.QueryContext(ctx, c.statements.SpoolIDs)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
