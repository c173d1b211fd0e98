package inboxstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestIngest_waiting_deliveries_share_a_commit_in_the_order_of_arrival(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c, release := newBacklog(t, database.Migrate(t))
		ids := numbered(20)
		c.enqueue(ids...)
		release(false)
		for _, id := range append(ids, "blocker") {
			require.Equal(t, result{fresh: true}, c.result(id), id)
		}
		require.Equal(t, append([]string{"blocker"}, ids...), c.stored())
		// PostgreSQL had the statement of the blocker in hand before the count began.
		commits := map[postbox.Dialect]int64{postbox.PostgreSQL: 1, postbox.MySQL: 2, postbox.SQLite: 2}[database.Dialect]
		require.Equal(t, commits, c.appends.All.Load())
		if database.Dialect == postbox.PostgreSQL {
			require.Zero(t, c.appends.InTx.Load(), "claims and messages are one statement, which commits by itself")
		}
	})
}

// A commit that cannot end holds up its own messages, and those of their keys.
func TestIngest_G3_a_second_commit_leaves_out_the_keys_of_the_first(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c, release := newBacklog(t, database.Migrate(t))
		if database.Dialect == postbox.SQLite { // writers take turns, so a second commit would only be a smaller one
			ids := numbered(2 * inboxstore.SecondCommit)
			c.enqueue(ids...)
			release(false)
			for _, id := range ids {
				require.Equal(t, result{fresh: true}, c.result(id), id)
			}
			return
		}
		deliver := func(id string, key string) {
			stored := make(chan result, 1)
			c.results[id] = stored
			msg := message.NewMessage(id, nil)
			msg.Metadata.Set(postbox.MetadataOrderingKey, key)
			go func() {
				fresh, err := c.store.Defer(t.Context(), "q", deferKey(id), msg)
				stored <- result{fresh, err}
			}()
		}
		// The second commit waits for somebody else, too, and then there is no third.
		second := c.hold(database.Open(t), "second blocker")
		deliver("second blocker", "customer")
		c.awaitWaiting(1)
		ids := numbered(inboxstore.SecondCommit - 1)
		for _, id := range ids {
			c.join(t.Context(), id)
		}
		c.awaitWaiting(0)
		deliver("behind", "customer")
		c.awaitWaiting(1)
		more := numbered(3 * inboxstore.SecondCommit)[:2*inboxstore.SecondCommit]
		for _, id := range more {
			c.join(t.Context(), id)
		}
		c.awaitWaiting(1 + len(more))

		release(false)
		for _, id := range append(more, "blocker") {
			require.Equal(t, result{fresh: true}, c.result(id), id)
		}
		c.awaitWaiting(1) // behind the one of its key
		second(false)
		for _, id := range append(ids, "second blocker", "behind") {
			require.Equal(t, result{fresh: true}, c.result(id), id)
		}
		require.Equal(t, "behind", c.stored()[len(c.stored())-1])
	})
}

func TestIngest_a_lone_delivery_commits_immediately(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		db, appends := inboxtest.Counted(t, database.Migrate(t))
		for _, unprepared := range []bool{false, true} {
			open := database.On(db)
			open.DisablePreparedStatements = unprepared
			store, err := inboxstore.New(open, inboxstore.Config{CacheSize: -1}, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			for i := range int64(20) {
				before := appends.All.Load()
				fresh, err := deferred(t.Context(), store, fmt.Sprint(unprepared, i))
				require.NoError(t, err)
				require.True(t, fresh)
				require.Equal(t, before+1, appends.All.Load())
			}
		}
		require.Equal(t, 40, storedMessages(t, database))
	})
}

func TestIngest_G8_a_commit_is_bounded_in_rows_and_bytes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c, release := newBacklog(t, database.Migrate(t))
		mebibyte := string(make([]byte, 1<<20))
		large := string(make([]byte, 6<<20)) // more than a commit takes otherwise
		for i := range 11 {
			payload := mebibyte
			if i == 5 {
				payload = large
			}
			c.joinWith(t.Context(), strconv.Itoa(i), payload)
			c.awaitWaiting(i + 1)
		}
		release(true)
		for i := range 11 {
			require.Equal(t, result{fresh: true}, c.result(strconv.Itoa(i)))
		}
		// 3 of 1 MiB and their metadata, 2, the large one, 3, 2. The blocker was there before.
		require.EqualValues(t, 5, c.appends.All.Load())
		if database.Dialect == postbox.SQLite {
			database.Exec(t, "DELETE FROM postbox_messages")
			before := c.appends.All.Load()
			release = c.hold(database.DB, "another blocker")
			c.join(t.Context(), "another blocker")
			c.awaitWaiting(0)
			ids := numbered(250)
			c.enqueue(ids...)
			release(true)
			for _, id := range ids {
				require.Equal(t, result{fresh: true}, c.result(id))
			}
			require.EqualValues(t, 3, c.appends.All.Load()-before, "SQLite takes 100 rows")
		}
	})
}

func TestIngest_F6_a_commit_stores_one_of_several_copies(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		ids := numbered(12)
		var theirs []string
		for i := 0; i < len(ids); i += 3 {
			theirs = append(theirs, ids[i])
		}
		c, release := newBacklog(t, database.Migrate(t), theirs...)
		c.enqueue(ids...)
		copies := make([]chan result, 0, len(ids))
		for i, id := range ids { // the second copy of each, in the same commit
			copies = append(copies, make(chan result, 1))
			go func() {
				fresh, err := deferred(t.Context(), c.store, id)
				copies[i] <- result{fresh, err}
			}()
		}
		c.awaitWaiting(2 * len(ids))
		release(true)
		require.Equal(t, result{}, c.result("blocker"), "somebody else stored it meanwhile")
		for i, id := range ids {
			require.Equal(t, result{fresh: !slices.Contains(theirs, id)}, c.result(id), id)
			require.Equal(t, result{}, <-copies[i], "copy of %s", id)
		}
		require.ElementsMatch(t, append(ids, "blocker"), c.stored())
		require.LessOrEqual(t, c.appends.All.Load(), int64(1), "no commit more for the duplicates")

		appended, lookedUp := c.appends.All.Load(), c.appends.Lookups.Load()
		for _, id := range ids {
			fresh, err := deferred(t.Context(), c.store, id)
			require.NoError(t, err)
			require.False(t, fresh)
		}
		if database.Dialect != postbox.PostgreSQL { // where claim and append are one statement
			require.Equal(t, appended, c.appends.All.Load(), "nothing is appended in vain")
			require.Equal(t, lookedUp, c.appends.Lookups.Load(), "the claim says all there is to know of one message")
		}
	})
}

func TestIngest_G8_a_cancelled_delivery_stops_waiting_and_ends_no_commit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c, release := newBacklog(t, database.Migrate(t))
		cancelled := func(id string) {
			ctx, cancel := context.WithCancel(t.Context())
			c.join(ctx, id)
			c.awaitWaiting(1)
			cancel()
			require.ErrorIs(t, c.result(id).err, context.Canceled)
			c.awaitWaiting(0)
		}
		cancelled("impatient")
		c.enqueue("patient")
		release(false)
		require.Equal(t, result{fresh: true}, c.result("blocker"))
		require.Equal(t, result{fresh: true}, c.result("patient"))
		require.Equal(t, []string{"blocker", "patient"}, c.stored())

		c.awaitIdle()
		release = c.hold(database.DB, "second blocker")
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		msg := message.NewMessage("second blocker", []byte("before"))
		go func() {
			_, err := c.store.Defer(ctx, "q", deferKey("second blocker"), msg)
			gone <- err
		}()
		c.awaitWaiting(0)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled, "it does not wait for the commit")
		copy(msg.Payload, "behind")
		c.enqueue("third")
		release(false)
		require.Equal(t, result{fresh: true}, c.result("third"))
		require.Equal(t, []string{"blocker", "patient", "second blocker", "third"}, c.stored(), "the commit went on")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE payload = ?", []byte("before")),
			"with the payload that was delivered")
		fresh, err := deferred(t.Context(), c.store, "second blocker")
		require.NoError(t, err)
		require.False(t, fresh, "its redelivery is a duplicate")

		_, err = deferred(overdue{t.Context()}, c.store, "overdue")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, c.stored(), 4, "who comes too late is not stored")
	})
}

// overdue is a context that ended, and does not tell who waits for that.
type overdue struct{ context.Context } //nolint:containedctx // it is one

func (overdue) Err() error { return context.DeadlineExceeded }

func TestIngest_G12_close_waits_for_waiting_deliveries(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c, release := newBacklog(t, database.Migrate(t))
		c.enqueue("1", "2")
		var closed atomic.Bool
		done := make(chan error, 1)
		go func() {
			err := c.store.Close()
			closed.Store(true)
			done <- err
		}()
		require.Eventually(t, func() bool {
			_, open := c.store.Waiting("q")
			return !open
		}, inboxtest.Patience, time.Millisecond)
		_, err := deferred(t.Context(), c.store, "late")
		require.ErrorIs(t, err, postbox.ErrClosed)
		require.False(t, closed.Load())
		release(false)
		require.NoError(t, <-done)
		for _, id := range []string{"blocker", "1", "2"} {
			require.Equal(t, result{fresh: true}, c.result(id))
		}
		require.Equal(t, []string{"blocker", "1", "2"}, c.stored())
	})
}

func TestIngest_G10_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		db := database.Migrate(t).Open(t)
		db.SetMaxOpenConns(1)
		store := inboxtest.StoreFor(t, database, db, nil)
		const deliveries, queues = 60, 3
		results := make(chan error, deliveries)
		for i := range deliveries {
			go func() {
				key := deferKey(strconv.Itoa(i / 2)) // each twice
				_, err := store.Defer(t.Context(), fmt.Sprint("queue ", i%queues), key, message.NewMessage(key.MessageID, nil))
				results <- err
			}()
		}
		for range deliveries {
			require.NoError(t, <-results)
		}
		require.Equal(t, deliveries/2, storedMessages(t, database))
	})
}
