package counts

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	// limit is the cap in tests, page is smaller, so that each count takes several pages.
	limit = 10
	page  = 3
	// longAgo makes a count old enough to be renewed.
	longAgo = 1
)

type bench struct {
	*enginetest.Bench

	id int64
}

func newBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	b := &bench{Bench: enginetest.NewBench(t, database)}
	var err error
	b.id, err = b.Spool.Open(t.Context(), database.DB)
	require.NoError(t, err)
	b.exec(b.Statements.AddChore, Task)
	return b
}

func (b *bench) exec(query string, args ...any) {
	b.T.Helper()
	b.Database.Exec(b.T, query, args...)
}

// ready stores messages, with keys of many lanes.
func (b *bench) ready(n int) {
	b.T.Helper()
	b.Append(b.Database.DB, enginetest.Drafts(n, func(i int) string { return fmt.Sprint(i) })...)
	b.Database.DueWhenWritten(b.T)
}

// letters adds dead letters of the spool, or of an inbox, of which some are resolved. All died at one moment.
func (b *bench) letters(n, resolved int, consumer string) {
	b.T.Helper()
	for i := range n {
		args := []any{nil, consumer, dialect.OriginInbox, nil}
		if consumer == "" {
			args = []any{b.id, "", dialect.OriginSpool, nil}
		}
		if i < resolved {
			args[3] = 1
		}
		b.exec(`INSERT INTO postbox_dead_letters (origin, subject, error, spool, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts, resolved_at)
			VALUES (?, ?, 'no', ?, ?, 'orders', ?, ?, ?, 1, 2, 3, ?)`, args[2], []byte("s"), args[0], args[1], []byte("m"), []byte("p"), []byte("{}"), args[3])
	}
}

// done adds messages to the history, always three at one moment.
func (b *bench) done(from, n int) {
	b.T.Helper()
	for i := from; i < from+n; i++ {
		b.exec(`INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts)
			VALUES (?, ?, 'orders', ?, ?, ?, 1, ?, 1)`, i, b.id, []byte("m"), []byte("p"), []byte("{}"), 1000+i/3)
	}
}

// read returns the numbers of the spool.
func (b *bench) read() Numbers {
	b.T.Helper()
	numbers, err := NewReader(b.Database.DB, b.Statements, limit).Spools(b.T.Context(), []int64{b.id})
	require.NoError(b.T, err)
	return numbers[b.id]
}

func (b *bench) inboxes() []Inbox {
	b.T.Helper()
	inboxes, err := NewReader(b.Database.DB, b.Statements, limit).Inboxes(b.T.Context())
	require.NoError(b.T, err)
	return inboxes
}

// counter returns another one, as another process would have it.
func (b *bench) counter() *Counter {
	c := NewCounter(b.Database.DB, b.Statements, limit, time.Hour)
	c.page = page
	return c
}

// step executes a step as the maintenance task does, and reports whether the round has ended.
func (b *bench) step(c *Counter) (ended bool) {
	b.T.Helper()
	renewed, pause, err := c.Step(b.T.Context(), b.stored())
	require.NoError(b.T, err)
	b.exec("UPDATE postbox_chores SET progress = ? WHERE name = ?", renewed, Task)
	return pause >= time.Hour
}

// round counts everything that is due.
func (b *bench) round(c *Counter) (steps int) {
	b.T.Helper()
	for steps = 1; !b.step(c); steps++ {
		require.Less(b.T, steps, 1000, "a count ends")
	}
	return steps
}

func (b *bench) stored() []byte {
	b.T.Helper()
	var text []byte
	require.NoError(b.T, b.Database.DB.QueryRowContext(b.T.Context(), b.Statements.ChoreCursor, Task).Scan(&text))
	return text
}

// outdate makes all counts old.
func (b *bench) outdate() {
	b.T.Helper()
	s := Decode(b.stored())
	for _, part := range []map[int64]Count{s.Ready, s.Waiting, s.Done} {
		for id, count := range part {
			count.At = longAgo
			part[id] = count
		}
	}
	s.Letters.At = longAgo
	text, err := s.Encode()
	require.NoError(b.T, err)
	b.exec("UPDATE postbox_chores SET progress = ? WHERE name = ?", text, Task)
}

func exactly(n int) Number { return Number{n, Exact} }
func counted(n int) Number { return Number{n, Counted} }
func atLeast(n int) Number { return Number{n, AtLeast} }
