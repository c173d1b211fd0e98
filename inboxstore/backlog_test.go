package inboxstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// backlog lets a test queue deliveries behind a commit that cannot end.
type backlog struct {
	t        *testing.T
	database *testdb.Database
	store    *inboxstore.Store
	db       *sql.DB // the store's
	appends  *inboxtest.Counts
	stranger *inboxstore.Store // in another process
	results  map[string]chan result
}

type result struct {
	fresh bool
	err   error
}

// newBacklog returns a backlog with the message "blocker" in a commit that waits until release is
// called. Another transaction holds that message and the messages in held, and release ends it.
// Appends are counted from then on.
func newBacklog(t *testing.T, database *testdb.Database, held ...string) (c *backlog, release func(commit bool)) {
	t.Helper()
	db, appends := inboxtest.Counted(t, database)
	c = &backlog{
		t: t, database: database, db: db, appends: appends, results: map[string]chan result{},
		store: inboxtest.StoreFor(t, database, db, func(c *inboxstore.Config) { c.DisableNotify = true }),
	}
	_, err := deferred(t.Context(), c.store, "the first message of a queue does more")
	require.NoError(t, err)
	other := database.Open(t)
	c.stranger = inboxtest.StoreFor(t, database, other, nil)
	release = c.hold(other, append(held, "blocker")...)
	c.join(t.Context(), "blocker")
	c.awaitWaiting(0)
	if database.Dialect == postbox.PostgreSQL { // the others claim first, and append what they have claimed
		require.Eventually(t, func() bool { return appends.All.Load() == 2 }, inboxtest.Patience, 100*time.Microsecond)
	}
	appends.All.Store(0)
	appends.InTx.Store(0)
	return c, release
}

// hold stores messages in a transaction that stays open.
func (c *backlog) hold(db *sql.DB, ids ...string) (release func(commit bool)) {
	c.t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(c.t.Context()), nil)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = tx.Rollback() })
	for _, id := range ids {
		fresh, err := deferred(postbox.ContextWithTx(c.t.Context(), tx), c.stranger, id)
		require.NoError(c.t, err)
		require.True(c.t, fresh)
	}
	return func(commit bool) {
		c.t.Helper()
		if commit {
			require.NoError(c.t, tx.Commit())
		} else {
			require.NoError(c.t, tx.Rollback())
		}
	}
}

// join delivers a message and does not wait for it.
func (c *backlog) join(ctx context.Context, id string) { c.joinWith(ctx, id, "payload of "+id) }

func (c *backlog) joinWith(ctx context.Context, id, payload string) {
	stored := make(chan result, 1)
	c.results[id] = stored
	go func() {
		fresh, err := c.store.Defer(ctx, "q", deferKey(id), message.NewMessage(id, []byte(payload)))
		stored <- result{fresh, err}
	}()
}

// enqueue delivers messages, so that they wait in this order.
func (c *backlog) enqueue(ids ...string) {
	c.t.Helper()
	before, _ := c.store.Waiting("q")
	for i, id := range ids {
		c.join(c.t.Context(), id)
		c.awaitWaiting(before + i + 1)
	}
}

// awaitWaiting waits until this many deliveries wait behind a running commit.
func (c *backlog) awaitWaiting(waiting int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		n, committing := c.store.Waiting("q")
		return committing && n == waiting
	}, inboxtest.Patience, 100*time.Microsecond)
}

// awaitIdle waits until no commit runs: an answer comes a moment before the end of its commit.
func (c *backlog) awaitIdle() {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		_, committing := c.store.Waiting("q")
		return !committing
	}, inboxtest.Patience, 100*time.Microsecond)
}

func (c *backlog) result(id string) result {
	c.t.Helper()
	select {
	case r := <-c.results[id]:
		return r
	case <-time.After(inboxtest.Patience):
		require.FailNow(c.t, "no answer", id)
		return result{}
	}
}

// stored returns the messages in the order of their ids.
func (c *backlog) stored() []string {
	c.t.Helper()
	rows, err := c.database.DB.QueryContext(c.t.Context(), "SELECT message_id FROM postbox_messages ORDER BY id")
	require.NoError(c.t, err)
	defer func() { _ = rows.Close() }()
	var ids []string
	for rows.Next() {
		var id []byte
		require.NoError(c.t, rows.Scan(&id))
		ids = append(ids, string(id))
	}
	require.NoError(c.t, rows.Err())
	return ids[1:] // without the first one of newBacklog
}

func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%03d", n-i) // falling: not the order of their claims
	}
	return ids
}
