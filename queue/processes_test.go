package queue_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
	"github.com/postbox-go/watermill-postbox/queue"
)

// Also covers feature N6.
func TestQueue_F14_attempts_do_not_multiply_with_processes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		var ids []string
		for i := range 12 {
			ids = append(ids, fmt.Sprint(i))
		}
		var tried inboxtest.Journal
		fail := func(msg *message.Message) error {
			tried.Add(msg.UUID)
			return inboxtest.ErrHandler
		}
		b.Start(inboxtest.Quick(nil), fail)
		for range 2 {
			b.another().Start(inboxtest.Quick(nil), fail)
		}
		b.Put(ids...)
		b.Drained()
		require.ElementsMatch(t, ids, b.Dead())
		for _, id := range ids {
			require.Equal(t, 3, tried.Times(id), "message %s", id)
		}
		require.Len(t, b.Failures(), 3*len(ids))
	})
}

func TestQueue_F15_nack_after_the_ack_changes_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("1", "2")
		received, err := inboxtest.SubscriberFor(t, b.Store).Subscribe(t.Context(), "q")
		require.NoError(t, err)
		for range 2 {
			msg := <-received
			require.True(t, msg.Ack())
			require.False(t, msg.Nack())
			queue.Fail(msg.Context(), inboxtest.ErrHandler)
		}
		b.Drained()
		require.Empty(t, b.Failures())
		require.Empty(t, b.Dead())
	})
}

// A process whose lease ran out without its noticing finishes what somebody else has taken over:
// its word counts for nothing, before the other one has finished and after. Also covers F10 and
// F15.
func TestQueue_G6_an_outcome_of_a_process_that_lost_the_lease_is_ignored(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]error{"ack": nil, "nack": inboxtest.ErrHandler, "permanent": postbox.Permanent(inboxtest.ErrHandler)} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, early is %t", name, early), func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, func(t *testing.T, database *testdb.Database) {
					b := newQueueBench(t, database)
					b.Put("a/1", "a/2")
					entered, proceed := make(chan struct{}), make(chan struct{})
					enter := sync.OnceFunc(func() { close(entered) })
					sleepy := inboxtest.Quick(func(c *queue.Config) { c.Lease = time.Hour })
					zombie := b.Start(sleepy, func(msg *message.Message) error {
						enter()
						if err := inboxtest.Hold(msg.Context(), proceed); err != nil {
							return err
						}
						return says
					})
					b.Await(entered, "the zombie's handler")
					b.Exec(t, "UPDATE postbox_members SET expires_at = 1")
					heirEntered, heirProceeds := make(chan struct{}), make(chan struct{})
					var heirs inboxtest.Journal
					heir := b.another().Start(inboxtest.Quick(nil), func(msg *message.Message) error {
						if heirs.Add(msg.UUID); msg.UUID == "a/1" {
							close(heirEntered)
							return inboxtest.Hold(msg.Context(), heirProceeds)
						}
						return nil
					})
					b.Await(heirEntered, "the heir's handler")
					if early {
						close(proceed)
						zombie.Stop()
						require.Equal(t, 2, b.Untried())
						close(heirProceeds)
						b.Drained()
					} else {
						close(heirProceeds)
						b.Drained()
						close(proceed)
						zombie.Stop()
					}
					heir.Stop()
					require.Equal(t, []string{"a/1", "a/2"}, heirs.All())
					require.Empty(t, b.Failures())
					require.Empty(t, b.Dead())
				})
			})
		}
	}
}

// A handler runs for longer than a lease lasts, and the lease follows the life of the process:
// nobody else gets the message. Also covers feature N4.
func TestQueue_G6_handlers_that_run_longer_than_the_lease_keep_it(t *testing.T) {
	t.Parallel()
	for _, inTx := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a transaction is %t", inTx), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				if inTx && database.Dialect == postbox.SQLite {
					return // its one connection is the handler's
				}
				b := newQueueBench(t, database)
				b.Put("a/1")
				short := inboxtest.Quick(func(c *queue.Config) { c.Lease, c.Transactional = time.Second, inTx })
				entered, proceed := make(chan struct{}), make(chan struct{})
				var runs atomic.Int32
				handle := func(msg *message.Message) error {
					if runs.Add(1) == 1 {
						close(entered)
					}
					return inboxtest.Hold(msg.Context(), proceed)
				}
				b.Start(short, handle)
				b.Await(entered, "the handler")
				const of = " FROM postbox_lanes l JOIN postbox_members m ON m.spool = l.spool AND m.holder = l.holder WHERE l.lane = ?"
				held := "SELECT COUNT(*)" + of + " AND l.token = ? AND m.expires_at >= ?"
				lane := b.Count(t, "SELECT lane FROM postbox_messages")
				token := b.Count(t, "SELECT token FROM postbox_lanes WHERE lane = ?", lane)
				b.another().Start(short, handle) // it would take over
				until := b.Count(t, "SELECT m.expires_at"+of, lane) + int((3 * time.Second).Microseconds())
				b.Eventually(func() bool { return b.Count(t, held, lane, token, until) == 1 }, "the lease is renewed for three times its length")
				require.EqualValues(t, 1, runs.Load())
				close(proceed)
				b.Drained()
				require.EqualValues(t, 1, runs.Load())
			})
		})
	}
}

// A rebalance gives the same messages to two members of a consumer group, again and again: each of
// them stores and acks. Also covers F6 and F25.
func TestQueue_G5_two_members_of_a_group_store_the_same_messages_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		members := []*queueBench{b, b.another()}
		var handled inboxtest.Journal
		var delivered atomic.Int32
		const messages, rounds = 20, 10
		done := make(chan struct{}, len(members))
		for _, member := range members {
			member.Start(inboxtest.Quick(nil), func(msg *message.Message) error {
				if handled.Add(msg.UUID) == 1 && msg.UUID == "a/7" {
					return inboxtest.ErrHandler
				}
				return nil
			})
			ingest := middleware.Defer(member.Store, "q")(message.PassthroughHandler)
			go func() {
				defer func() { done <- struct{}{} }()
				for range rounds {
					for i := range messages {
						if _, err := ingest(inboxtest.Keyed(fmt.Sprintf("a/%d", i))); err != nil {
							t.Error(err)
						}
						delivered.Add(1)
					}
				}
			}()
		}
		for range members {
			b.Await(done, "the deliveries")
		}
		b.Drained()
		require.EqualValues(t, len(members)*rounds*messages, delivered.Load())
		require.Len(t, handled.All(), messages+1)
		for i := range messages {
			want := 1
			if i == 7 {
				want = 2
			}
			require.Equal(t, want, handled.Times(fmt.Sprintf("a/%d", i)))
		}
	})
}
