package queue_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
)

// micro shares a transaction among so many messages, with one handler at a time.
func micro(size int) func(*queue.Config) {
	return func(c *queue.Config) { c.MicroBatch, c.Concurrency = size, 1 }
}

// keysOf returns ids of so many messages of each key, the first ones of all keys first.
func keysOf(messages int, keys ...string) []string {
	var ids []string
	for i := range messages {
		for _, key := range keys {
			ids = append(ids, fmt.Sprintf("%s/%d", key, i))
		}
	}
	return ids
}

// Covers feature N10.
func TestQueue_many_messages_share_a_commit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1) // G10
		b := newQueueBench(t, database)
		ids := keysOf(4, "a", "b", "c")
		b.Put(ids...)
		b.Start(inboxtest.Quick(micro(len(ids))), func(msg *message.Message) error {
			if got := len(b.Effects()); got > 0 {
				t.Errorf("%d effects are committed before the last handler has ended", got)
			}
			return b.Effect(msg.Context(), msg)
		})
		b.Drained()
		require.ElementsMatch(t, ids, b.Effects())
		for _, key := range []string{"a", "b", "c"} {
			require.True(t, slices.IsSorted(inboxtest.OfKey(b.Effects(), key)), "order within %s", key)
		}
		require.Equal(t, 1, b.Commits())
	})
}

// The batch of nine is rolled back. Then each is by itself: only the culprit is tried again, and
// its key waits. Also covers G3 and feature N10.
func TestQueue_G4_effects_happen_once_although_one_message_of_a_commit_fails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"an error": func() error { return inboxtest.ErrHandler },
		"a panic":  func() error { return fmt.Errorf("panic: %w", inboxtest.ErrHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				ids := keysOf(3, "a", "b", "c")
				b.Put(ids...)
				var failed atomic.Int32
				b.Start(inboxtest.Quick(micro(len(ids))), func(msg *message.Message) error {
					if err := b.Effect(msg.Context(), msg); err != nil {
						return err
					}
					if msg.UUID == "b/1" && failed.Add(1) <= 2 {
						return fail()
					}
					return nil
				})
				b.Drained()
				require.ElementsMatch(t, ids, b.Effects(), "each once")
				for _, key := range []string{"a", "b", "c"} {
					require.True(t, slices.IsSorted(inboxtest.OfKey(b.Effects(), key)), "order within %s: %v", key, b.Effects())
				}
				require.EqualValues(t, 3, failed.Load(), "in the batch, by itself, and again")
				require.Len(t, b.Failures(), 1, "the first failure may have been another message's fault")
				require.Empty(t, b.Dead())
			})
		})
	}
}

// The culprit takes nobody along.
// Also covers feature N10.
func TestQueue_a_culprit_in_a_shared_commit_dies_alone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := keysOf(3, "a", "b", "c")
		b.Put(ids...)
		b.Start(inboxtest.Quick(micro(len(ids))), func(msg *message.Message) error {
			if err := b.Effect(msg.Context(), msg); err != nil || msg.UUID != "b/1" {
				return err
			}
			return inboxtest.ErrHandler
		})
		b.Drained()
		require.Equal(t, []string{"b/1"}, b.Dead())
		require.Len(t, b.Failures(), 3)
		require.ElementsMatch(t, slices.DeleteFunc(ids, func(id string) bool { return id == "b/1" }), b.Effects())
	})
}

// A service that the handler needs is away: no handler is called one by one to find that out again.
// Also covers feature N10.
func TestQueue_G7_an_outage_in_a_shared_transaction_is_counted_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		ids := keysOf(1, "a", "b", "c", "d", "e", "f")
		b.Put(ids...)
		var calls inboxtest.Journal
		config := inboxtest.Quick(micro(len(ids)))
		config.Classify = func(error) postbox.ErrorClass { return postbox.Outage }
		config.ProbeMin, config.ProbeMax, config.Lease = time.Hour, time.Hour, time.Second
		patient := b.Start(config, func(msg *message.Message) error {
			calls.Add(msg.UUID)
			return inboxtest.ErrHandler
		})
		b.Eventually(func() bool { return len(calls.All()) > 0 }, "a handler")
		b.Renewed(2)
		require.Len(t, calls.All(), 1)
		patient.Stop()
		b.Start(inboxtest.Quick(inboxtest.Transactional), func(msg *message.Message) error { return b.Effect(msg.Context(), msg) })
		b.Drained()
		require.ElementsMatch(t, ids, b.Effects())
		require.Empty(t, b.Failures())
	})
}

// The messages of a lost lane take the others' transaction with them, and those are handled again.
// Also covers G6 and feature N10.
func TestQueue_G4_effects_happen_once_although_one_lane_of_a_commit_was_lost(t *testing.T) {
	t.Parallel()
	for _, open := range []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL} {
		b := newQueueBench(t, open(t))
		ids := keysOf(2, "a", "b", "c")
		b.Put(ids...)
		var stolen atomic.Bool
		b.Start(inboxtest.Quick(micro(len(ids))), func(msg *message.Message) error {
			if stolen.CompareAndSwap(false, true) { // as if somebody else had taken and handed back the lane of b
				b.Exec(t, "UPDATE postbox_lanes SET token = token + 1 WHERE lane = (SELECT MIN(lane) FROM postbox_messages WHERE message_id = ?)", []byte("b/0"))
			}
			return b.Effect(msg.Context(), msg)
		})
		b.Drained()
		require.ElementsMatch(t, ids, b.Effects())
		require.Empty(t, b.Failures())
	}
}
