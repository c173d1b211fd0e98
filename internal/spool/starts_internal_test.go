package spool

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// counter is a drainer that holds a lane of suspects, of which it counts the starts.
type counter struct {
	*testing.T
	database *testdb.Database
	d        *Drainer
	suspects []*Message
}

const counted = 20

func newCounter(t *testing.T, database *testdb.Database) *counter {
	t.Helper()
	database.Migrate(t)
	names, err := dialect.NewNames("", "")
	require.NoError(t, err)
	statements, err := dialect.New(dialect.Kind(database.Dialect), names)
	require.NoError(t, err)
	own := New(statements, "outbox", 1)
	drafts := make([]Draft, counted)
	for i := range drafts {
		drafts[i] = Draft{Topic: "orders", MessageID: fmt.Sprint(i)}
	}
	require.NoError(t, own.Append(t.Context(), database.DB, Run, drafts))
	c := &counter{T: t, database: database, d: NewDrainer(database.DB, own, everything{}, Config{
		Holder: "one", PageSize: counted, BatchSize: 1, Workers: 1,
		PollMin: time.Millisecond, PollMax: time.Second, Lease: time.Minute, Renew: time.Minute,
	}, watermill.NopLogger{})}
	t.Cleanup(func() {
		c.d.scheduler.stop()
		c.d.workers.Wait()
		c.d.prepared.Close()
	})
	require.NoError(t, c.d.tryOpen(t.Context()))
	require.NoError(t, c.d.upkeep(t.Context()))
	found, err := c.d.fetch(t.Context(), dialect.FetchParams{
		Spool: c.d.id, Cursors: []dialect.Cursor{{Lane: 0}}, PerLane: counted, Inline: 1 << 10,
	})
	require.NoError(t, err)
	require.Len(t, found.messages, counted)
	for _, m := range found.messages {
		m.suspect, m.spool = true, own
	}
	c.suspects = found.messages
	return c
}

// together counts all suspects at a time, the first line of which has all of them, and returns what was said of each.
func (c *counter) together() (results []bool, wait func()) {
	c.Helper()
	results = make([]bool, len(c.suspects))
	var workers sync.WaitGroup
	c.d.starts.turn.Lock()
	for i, m := range c.suspects {
		workers.Go(func() {
			ok, err := c.d.countStart(context.WithoutCancel(c.Context()), m)
			if err != nil {
				c.Error(err)
			}
			results[i] = ok
		})
	}
	require.Eventually(c, func() bool {
		c.d.starts.mu.Lock()
		defer c.d.starts.mu.Unlock()
		return len(c.d.starts.line) == len(c.suspects)
	}, time.Minute, time.Millisecond)
	c.d.starts.turn.Unlock()
	return results, workers.Wait
}

// starts is how many messages have been started once; none may have been twice.
func (c *counter) starts() int {
	c.Helper()
	require.Zero(c, c.database.Count(c, "SELECT COUNT(*) FROM postbox_messages WHERE starts > 1"))
	return c.database.Count(c, "SELECT COUNT(*) FROM postbox_messages WHERE starts = 1")
}

func TestStarts_those_in_line_are_counted_once_each_F5(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		results, wait := c.together()
		wait()
		require.NotContains(t, results, false)
		require.Equal(t, counted, c.starts())
		for _, m := range c.suspects {
			require.Equal(t, 1, m.started)
		}
	})
}

func TestStarts_a_message_that_is_gone_is_not_counted_and_the_others_are_F5(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		c.suspects[7].Ref.Token++ // as if another process held the lane
		results, wait := c.together()
		wait()
		require.False(t, results[7])
		require.Zero(t, c.suspects[7].started)
		require.Equal(t, counted-1, c.starts())
	})
}

func TestStarts_a_row_that_is_locked_holds_up_nobody_else_F5(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(t.Context(), database.Bind("UPDATE postbox_messages SET attempts = attempts WHERE id = ?"), c.suspects[7].Ref.ID)
		require.NoError(t, err)
		results, wait := c.together()
		require.Eventually(t, func() bool { return c.starts() == counted-1 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, tx.Rollback())
		wait()
		require.NotContains(t, results, false)
		require.Equal(t, counted, c.starts())
	})
}
