package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

var errAway = errors.New("the service is away")

// awayIsOutage tells an outage of what the handler needs.
func awayIsOutage(c *queue.Config) {
	c.Classify = func(err error) postbox.ErrorClass {
		if errors.Is(err, errAway) {
			return postbox.Outage
		}
		return postbox.Unclassified
	}
}

// A driver may say that it has lost its connection in words that nobody knows. Where an inbox
// within the handler of a queue hears them, they are the database's. Also covers F13.
func TestQueue_G7_an_inbox_in_a_handler_without_a_connection_counts_no_attempt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1")
		gone := database.Open(t)
		require.NoError(t, gone.Close())
		dead := inboxtest.StoreFor(t, database, gone, nil)
		var calls atomic.Int32
		b.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
			if calls.Add(1) > 3 {
				return nil
			}
			_, err := dead.Once(msg.Context(), inboxstore.Key{Consumer: "within", MessageID: msg.UUID}, func(context.Context) error { return nil })
			return err
		})
		b.Drained()
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"), "none of it was an attempt")
		require.EqualValues(t, 4, calls.Load())
	})
}

// The probe succeeds, but its message is not this process's any more: the queue must go on
// nevertheless. Also covers F13.
func TestQueue_G6_goes_on_after_a_probe_lost_its_lease(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newQueueBench(t, open(t))
		b.Put("1")
		var calls atomic.Int32
		config := inboxtest.Quick(awayIsOutage)
		config.Transactional = true
		b.Start(config, func(msg *message.Message) error {
			switch calls.Add(1) {
			case 1:
				return errAway
			case 2:
				b.Exec(t, "UPDATE postbox_lanes SET token = token + 1")
			}
			return b.Effect(msg.Context(), msg)
		})
		b.Drained()
		require.Equal(t, []string{"1"}, b.Effects())
	}
}

// Also covers F13 and feature N5.
func TestQueue_G7_an_outage_counts_no_attempt_and_ends_by_itself(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := keysOf(5, "a", "b", "c", "d", "e", "f")
				b.Put(ids...)
				var away, probing atomic.Bool
				away.Store(true)
				var atWork, calls atomic.Int32
				var handled inboxtest.Journal
				config := inboxtest.Quick(awayIsOutage)
				config.Transactional, config.Concurrency = inTx, 4
				b.Start(config, func(msg *message.Message) error {
					n := atWork.Add(1)
					defer atWork.Add(-1)
					if calls.Add(1); !away.Load() {
						handled.Add(msg.UUID)
						return nil
					}
					if n > 1 && probing.Load() {
						t.Errorf("%d probes at a time", n)
					}
					return fmt.Errorf("ask: %w", errAway)
				})
				// Handlers that had their turn before the first one failed may still wait for a
				// connection: after so many probes none does.
				b.Eventually(func() bool { return calls.Load() > 20 && atWork.Load() == 0 }, "the outage has begun")
				probing.Store(true)
				before := calls.Load()
				b.Eventually(func() bool { return calls.Load() > before+5 }, "it is probed")
				require.Equal(t, len(ids), b.Untried())
				probing.Store(false)
				away.Store(false)
				b.Drained()
				require.Len(t, handled.All(), len(ids))
				for _, key := range []string{"a", "f"} {
					require.True(t, slices.IsSorted(inboxtest.OfKey(handled.All(), key)), "key %s: %v", key, handled.All())
				}
				require.Empty(t, b.Attempts())
				require.Empty(t, b.Dead())
			})
		})
	}
}

// The database goes away under the handlers, and comes back.
// Also covers F13.
func TestQueue_G7_an_outage_of_the_database_counts_no_attempt(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				if database.Dialect == postbox.SQLite {
					return // it cannot go away
				}
				db, valve := throughValve(t, database)
				b := newQueueBench(t, database).Over(db)
				ids := keysOf(5, "a", "b", "c", "d")
				b.Put(ids...)
				var run inboxtest.Journal
				b.Start(inboxtest.Quick(func(c *queue.Config) { c.Transactional, c.Concurrency = inTx, 4 }), func(msg *message.Message) error {
					run.Add(msg.UUID)
					if len(run.All()) == 6 {
						valve.shut(true)
					}
					if inTx {
						return b.Effect(msg.Context(), msg)
					}
					return nil
				})
				b.Eventually(func() bool { return valve.refused.Load() >= 3 }, "the database is asked for")
				require.Positive(t, b.Pending())
				valve.shut(false)
				b.Drained()
				require.Empty(t, b.Attempts())
				require.Empty(t, b.Dead())
				if inTx {
					require.ElementsMatch(t, ids, b.Effects())
				} else {
					require.ElementsMatch(t, ids, run.All(), "the end of each was remembered meanwhile")
				}
			})
		})
	}
}
