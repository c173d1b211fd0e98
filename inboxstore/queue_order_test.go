package inboxstore_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// busy notes which keys have a handler at work, and which have had two.
type busy struct {
	mu   sync.Mutex
	keys map[string]int
	two  []string
}

func (b *busy) enter(key string) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys == nil {
		b.keys = map[string]int{}
	}
	if b.keys[key]++; b.keys[key] > 1 {
		b.two = append(b.two, key)
	}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.keys[key]--
	}
}

func TestQueue_G3_S0_0_4_one_key_in_order_over_two_processes_whatever_fails(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const perKey = 20
		keys := []string{"a", "b", "c", "d", "e", "f"}
		b := newQueueBench(t, database)
		var tried, handled journal
		var busy busy
		handle := func(msg *message.Message) error {
			key, _, _ := strings.Cut(msg.UUID, "/")
			defer busy.enter(key)()
			if tried.add(msg.UUID) == 1 && strings.HasSuffix(msg.UUID, "3") {
				return errHandler
			}
			handled.add(msg.UUID)
			return nil
		}
		b.start(quick(nil), handle)
		other := b.another()
		for i := range perKey { // they come in while both work, and the lanes change hands
			for _, key := range keys {
				b.put(fmt.Sprintf("%s/%02d", key, i))
			}
			if i == perKey/2 {
				other.start(quick(nil), handle)
			}
		}
		b.drained()
		require.Len(t, handled.all(), perKey*len(keys), "no message was handled twice")
		for _, key := range keys {
			require.Len(t, ofKey(handled.all(), key), perKey)
			require.True(t, slices.IsSorted(ofKey(handled.all(), key)), "key %s: %v", key, ofKey(handled.all(), key))
		}
		require.Empty(t, busy.two)
		require.Len(t, b.failures(), 2*len(keys))
	})
}

// Two handlers of one key meet: with one after the other they never would.
func TestQueue_S0_0_3_single_handles_messages_of_one_key_side_by_side(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("a/1", "a/2", "a/3")
		var meeting sync.WaitGroup
		meeting.Add(3)
		met := make(chan struct{})
		go func() {
			defer close(met)
			meeting.Wait()
		}()
		b.start(quick(func(c *inboxstore.QueueConfig) { c.Mode = inboxstore.Single }), func(msg *message.Message) error {
			meeting.Done()
			return hold(msg.Context(), met)
		})
		b.await(met, "the handlers to meet")
		b.drained()
	})
}

func TestQueue_S0_0_3_single_passes_a_message_that_fails(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.put("a/1", "a/2", "a/3")
		config := quick(func(c *inboxstore.QueueConfig) { c.Mode = inboxstore.Single })
		config.Retry = postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: postbox.NoJitter}
		b.start(config, func(msg *message.Message) error {
			if msg.UUID == "a/1" {
				return errHandler
			}
			return nil
		})
		b.eventually(func() bool { return b.pending() == 1 }, "the others are handled")
		b.put("a/4") // while the failure stands in the database
		b.eventually(func() bool { return b.pending() == 1 }, "so is what comes later")
		require.Equal(t, []string{"a/1"}, b.list("SELECT message_id FROM postbox_messages"))
	})
}

// What happens when the head of a key keeps failing. In each case its key waits as long as the head is there, and
// everybody else does not.
func TestQueue_N8_F11_head_of_a_key_keeps_failing(t *testing.T) {
	t.Parallel()
	ids := []string{"bad/1", "bad/2", "good/1", "bad/3", "good/2", "3"}
	headOf := func(policy inboxstore.HeadPolicy) inboxstore.QueueConfig {
		return quick(func(c *inboxstore.QueueConfig) { c.Head, c.Lease = policy, time.Second })
	}
	onlyHead := func(journal *journal, head func(run int) error) func(*message.Message) error {
		return func(msg *message.Message) error {
			if run := journal.add(msg.UUID); msg.UUID == "bad/1" {
				return head(run)
			}
			return nil
		}
	}
	for name, test := range map[string]func(*queueBench, *journal){
		"skip": func(b *queueBench, journal *journal) {
			b.start(headOf(inboxstore.SkipHead), onlyHead(journal, func(int) error { return errHandler }))
			b.drained()
			require.Equal(b.t, 3, journal.times("bad/1"))
			require.Equal(b.t, []string{"bad/1"}, b.dead())
		},
		"block": func(b *queueBench, journal *journal) {
			b.start(headOf(inboxstore.BlockOnHead), onlyHead(journal, func(run int) error {
				if run < 8 { // more than the attempts of the retry profile
					return errHandler
				}
				return nil
			}))
			b.drained()
			require.Empty(b.t, b.dead())
			require.Len(b.t, b.failures(), 7)
		},
		"block, until a permanent error": func(b *queueBench, journal *journal) {
			b.start(headOf(inboxstore.BlockOnHead), onlyHead(journal, func(run int) error {
				if run < 5 {
					return errHandler
				}
				return postbox.Permanent(errHandler)
			}))
			b.drained()
			require.Equal(b.t, []string{"bad/1"}, b.dead())
		},
		"park": func(b *queueBench, journal *journal) {
			resumed := make(chan struct{})
			b.start(headOf(inboxstore.ParkHead), onlyHead(journal, func(int) error {
				select {
				case <-resumed:
					return nil
				default:
					return errHandler
				}
			}))
			b.parked(3)
			require.Equal(b.t, 3, journal.times("bad/1"))
			require.Equal(b.t, 3, b.pending(), "its key waits, and the others do not")
			require.Zero(b.t, journal.times("bad/2"))
			close(resumed)
			b.Exec(b.t, "UPDATE postbox_messages SET available_at = 0, attempts = 0 WHERE message_id = ?", []byte("bad/1")) // an operator
			b.drained()
			require.Empty(b.t, b.dead())
		},
		"park, at once with a permanent error": func(b *queueBench, journal *journal) {
			b.start(headOf(inboxstore.ParkHead), onlyHead(journal, func(int) error { return postbox.Permanent(errHandler) }))
			b.parked(1)
			require.Equal(b.t, []string{errHandler.Error()}, b.failures())
			b.Exec(b.t, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("bad/1"))
			b.drained()
			require.Equal(b.t, 1, journal.times("bad/1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.put(ids...)
				var journal journal
				test(b, &journal)
				runs := journal.all()
				require.Equal(t, []string{"bad/2", "bad/3"}, ofKey(runs, "bad")[journal.times("bad/1"):], "the key waited for its head")
				require.Equal(t, []string{"good/1", "good/2"}, ofKey(runs, "good"))
			})
		})
	}
}

// parked waits until the head stands aside for good, after so many attempts, and nothing else is left that can run.
func (b *queueBench) parked(attempts int) {
	b.t.Helper()
	b.eventually(func() bool {
		return b.pending() == 3 && b.Count(b.t, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND attempts = ? AND available_at > ?",
			[]byte("bad/1"), attempts, time.Now().Add(100*365*24*time.Hour).UnixMicro()) == 1
	}, "the head is parked")
	b.renewed(1) // and stays so
}

// Messages that wait for another attempt, more of them than a page or the memory holds, starve nobody.
func TestQueue_F11_G8_many_that_wait_starve_nobody(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for i := range 40 {
			b.put(fmt.Sprintf("%d/bad", i), fmt.Sprintf("%d/behind", i))
		}
		b.put(keysOf(5, "good", "fine")...)
		var journal journal
		config := quick(func(c *inboxstore.QueueConfig) { c.PageSize = 5 })
		b.start(config, func(msg *message.Message) error {
			journal.add(msg.UUID)
			if strings.HasSuffix(msg.UUID, "bad") {
				return postbox.RetryAfter(errHandler, time.Hour)
			}
			return nil
		})
		b.eventually(func() bool { return b.pending() == 80 }, "who does not wait is handled")
		b.eventually(func() bool { return len(b.failures()) == 40 }, "all that fail have failed")
		require.Len(t, journal.all(), 50, "nobody behind a failure was handled")
	})
}

func TestQueue_concurrency_is_bounded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for i := range 30 {
			b.put(fmt.Sprint(i))
		}
		var atWork atomic.Int32
		full := make(chan struct{})
		isFull := sync.OnceFunc(func() { close(full) })
		b.start(quick(func(c *inboxstore.QueueConfig) { c.Concurrency = 4 }), func(msg *message.Message) error {
			n := atWork.Add(1)
			defer atWork.Add(-1)
			if n > 4 {
				t.Errorf("%d handlers at a time", n)
			} else if n == 4 {
				isFull()
			}
			return hold(msg.Context(), full)
		})
		b.drained()
	})
}
