package inboxstore_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

func TestQueue_F14_N6_attempts_do_not_multiply_with_processes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprint(i))
		}
		var tried journal
		fail := func(msg *message.Message) error {
			tried.add(msg.UUID)
			return errHandler
		}
		b.start(quick(nil), fail)
		for range 2 {
			b.another().start(quick(nil), fail)
		}
		b.put(ids...)
		b.drained()
		require.ElementsMatch(t, ids, b.dead())
		for _, id := range ids {
			require.Equal(t, 3, tried.times(id), "message %s", id)
		}
		require.Len(t, b.failures(), 3*len(ids))
	})
}

func TestQueue_F15_nack_after_the_ack_changes_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("1", "2")
		received, err := subscriberFor(t, b.store).Subscribe(t.Context(), "q")
		require.NoError(t, err)
		for range 2 {
			msg := <-received
			require.True(t, msg.Ack())
			require.False(t, msg.Nack())
			inboxstore.Fail(msg.Context(), errHandler)
		}
		b.drained()
		require.Empty(t, b.failures())
		require.Empty(t, b.dead())
	})
}

// A process whose lease ran out without its noticing finishes what somebody else has taken over: its word counts for
// nothing, before the other one has finished and after.
func TestQueue_F15_F10_G6_word_of_a_zombie_counts_for_nothing(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]error{"ack": nil, "nack": errHandler, "permanent": postbox.Permanent(errHandler)} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, early is %t", name, early), func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newQueueBench(t, database)
					b.put("a/1", "a/2")
					entered, proceed := make(chan struct{}), make(chan struct{})
					enter := sync.OnceFunc(func() { close(entered) })
					sleepy := quick(func(c *inboxstore.QueueConfig) { c.Lease = time.Hour })
					zombie := b.start(sleepy, func(msg *message.Message) error {
						enter()
						if err := hold(msg.Context(), proceed); err != nil {
							return err
						}
						return says
					})
					b.await(entered, "the zombie's handler")
					b.Exec(t, "UPDATE postbox_lanes SET expires_at = 1")
					b.Exec(t, "UPDATE postbox_members SET expires_at = 1")
					heirEntered, heirProceeds := make(chan struct{}), make(chan struct{})
					var heirs journal
					heir := b.another().start(quick(nil), func(msg *message.Message) error {
						if heirs.add(msg.UUID); msg.UUID == "a/1" {
							close(heirEntered)
							return hold(msg.Context(), heirProceeds)
						}
						return nil
					})
					b.await(heirEntered, "the heir's handler")
					if early {
						close(proceed)
						zombie.close()
						require.Equal(t, 2, b.untried())
						close(heirProceeds)
						b.drained()
					} else {
						close(heirProceeds)
						b.drained()
						close(proceed)
						zombie.close()
					}
					heir.close()
					require.Equal(t, []string{"a/1", "a/2"}, heirs.all())
					require.Empty(t, b.failures())
					require.Empty(t, b.dead())
				})
			})
		}
	}
}

// A handler runs for longer than a lease lasts, and the lease follows the life of the process: nobody else gets the
// message.
func TestQueue_N4_G6_handlers_longer_than_the_lease_keep_it(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				if inTx && database.Dialect == postbox.SQLite {
					return // its one connection is the handler's
				}
				b := newQueueBench(t, database)
				b.put("a/1")
				short := quick(func(c *inboxstore.QueueConfig) { c.Lease, c.Transactional = time.Second, inTx })
				entered, proceed := make(chan struct{}), make(chan struct{})
				var runs atomic.Int32
				handle := func(msg *message.Message) error {
					if runs.Add(1) == 1 {
						close(entered)
					}
					return hold(msg.Context(), proceed)
				}
				b.start(short, handle)
				b.await(entered, "the handler")
				held := "SELECT COUNT(*) FROM postbox_lanes WHERE lane = ? AND token = ? AND expires_at >= ?"
				lane := b.Count(t, "SELECT lane FROM postbox_messages")
				token := b.Count(t, "SELECT token FROM postbox_lanes WHERE lane = ?", lane)
				b.another().start(short, handle) // it would take over
				until := b.Count(t, "SELECT expires_at FROM postbox_lanes WHERE lane = ?", lane) + int((3 * time.Second).Microseconds())
				b.eventually(func() bool { return b.Count(t, held, lane, token, until) == 1 }, "the lease is renewed for three times its length")
				require.EqualValues(t, 1, runs.Load())
				close(proceed)
				b.drained()
				require.EqualValues(t, 1, runs.Load())
			})
		})
	}
}

// A rebalance gives the same messages to two members of a consumer group, again and again: each of them stores and acks.
func TestQueue_F25_F6_G5_two_members_with_the_same_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		members := []*queueBench{b, b.another()}
		var handled journal
		var delivered atomic.Int32
		const messages, rounds = 20, 10
		done := make(chan struct{}, len(members))
		for _, member := range members {
			member.start(quick(nil), func(msg *message.Message) error {
				if handled.add(msg.UUID) == 1 && msg.UUID == "a/7" {
					return errHandler
				}
				return nil
			})
			ingest := middleware.Defer(member.store, "q")(message.PassthroughHandler)
			go func() {
				defer func() { done <- struct{}{} }()
				for range rounds {
					for i := range messages {
						if _, err := ingest(keyed(fmt.Sprintf("a/%d", i))); err != nil {
							t.Error(err)
						}
						delivered.Add(1)
					}
				}
			}()
		}
		for range members {
			b.await(done, "the deliveries")
		}
		b.drained()
		require.EqualValues(t, len(members)*rounds*messages, delivered.Load())
		require.Len(t, handled.all(), messages+1)
		for i := range messages {
			want := 1
			if i == 7 {
				want = 2
			}
			require.Equal(t, want, handled.times(fmt.Sprintf("a/%d", i)))
		}
	})
}
