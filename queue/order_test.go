package queue_test

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
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/queue"
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

// Also covers feature 0.4.
func TestQueue_G3_two_processes_keep_the_order_of_a_key_despite_failures(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const perKey = 20
		keys := []string{"a", "b", "c", "d", "e", "f"}
		b := newQueueBench(t, database)
		var tried, handled inboxtest.Journal
		var busy busy
		handle := func(msg *message.Message) error {
			key, _, _ := strings.Cut(msg.UUID, "/")
			defer busy.enter(key)()
			if tried.Add(msg.UUID) == 1 && strings.HasSuffix(msg.UUID, "3") {
				return inboxtest.ErrHandler
			}
			handled.Add(msg.UUID)
			return nil
		}
		b.Start(inboxtest.Quick(nil), handle)
		other := b.another()
		for i := range perKey { // they come in while both work, and the lanes change hands
			for _, key := range keys {
				b.Put(fmt.Sprintf("%s/%02d", key, i))
			}
			if i == perKey/2 {
				other.Start(inboxtest.Quick(nil), handle)
			}
		}
		b.Drained()
		require.Len(t, handled.All(), perKey*len(keys), "no message was handled twice")
		for _, key := range keys {
			require.Len(t, inboxtest.OfKey(handled.All(), key), perKey)
			require.True(t, slices.IsSorted(inboxtest.OfKey(handled.All(), key)), "key %s: %v", key, inboxtest.OfKey(handled.All(), key))
		}
		require.Empty(t, busy.two)
		require.Len(t, b.Failures(), 2*len(keys))
	})
}

// Two handlers of one key meet: with one after the other they never would.
// Also covers feature 0.3.
func TestQueue_single_mode_handles_messages_of_a_key_concurrently(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("a/1", "a/2", "a/3")
		var meeting sync.WaitGroup
		meeting.Add(3)
		met := make(chan struct{})
		go func() {
			defer close(met)
			meeting.Wait()
		}()
		b.Start(inboxtest.Quick(func(c *queue.Config) { c.Unordered = true }), func(msg *message.Message) error {
			meeting.Done()
			return inboxtest.Hold(msg.Context(), met)
		})
		b.Await(met, "the handlers to meet")
		b.Drained()
	})
}

// Covers feature 0.3.
func TestQueue_single_mode_passes_a_message_that_fails(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		b.Put("a/1", "a/2", "a/3")
		config := inboxtest.Quick(func(c *queue.Config) { c.Unordered = true })
		config.Retry = postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}
		b.Start(config, func(msg *message.Message) error {
			if msg.UUID == "a/1" {
				return inboxtest.ErrHandler
			}
			return nil
		})
		b.Eventually(func() bool { return b.Pending() == 1 }, "the others are handled")
		b.Put("a/4") // while the failure stands in the database
		b.Eventually(func() bool { return b.Pending() == 1 }, "so is what comes later")
		require.Equal(t, []string{"a/1"}, b.List("SELECT message_id FROM postbox_messages"))
	})
}

// What happens when the head of a key keeps failing. In each case its key waits as long as the head
// is there, and everybody else does not. Also covers feature N8.
func TestQueue_F11_a_head_that_keeps_failing_holds_up_only_its_key(t *testing.T) {
	t.Parallel()
	ids := []string{"bad/1", "bad/2", "good/1", "bad/3", "good/2", "3"}
	headOf := func(change func(c *queue.Config)) queue.Config {
		return inboxtest.Quick(func(c *queue.Config) {
			c.Lease = time.Second
			change(c)
		})
	}
	onlyHead := func(journal *inboxtest.Journal, head func(run int) error) func(*message.Message) error {
		return func(msg *message.Message) error {
			if run := journal.Add(msg.UUID); msg.UUID == "bad/1" {
				return head(run)
			}
			return nil
		}
	}
	for name, test := range map[string]func(*queueBench, *inboxtest.Journal){
		"skip": func(b *queueBench, journal *inboxtest.Journal) {
			b.Start(headOf(func(*queue.Config) {}), onlyHead(journal, func(int) error { return inboxtest.ErrHandler }))
			b.Drained()
			require.Equal(b.T, 3, journal.Times("bad/1"))
			require.Equal(b.T, []string{"bad/1"}, b.Dead())
		},
		"block": func(b *queueBench, journal *inboxtest.Journal) {
			b.Start(headOf(func(c *queue.Config) { c.Retry.Attempts = -1 }), onlyHead(journal, func(run int) error {
				if run < 8 { // more than the attempts of the retry profile
					return inboxtest.ErrHandler
				}
				return nil
			}))
			b.Drained()
			require.Empty(b.T, b.Dead())
			require.Len(b.T, b.Failures(), 7)
		},
		"block, until a permanent error": func(b *queueBench, journal *inboxtest.Journal) {
			b.Start(headOf(func(c *queue.Config) { c.Retry.Attempts = -1 }), onlyHead(journal, func(run int) error {
				if run < 5 {
					return inboxtest.ErrHandler
				}
				return postbox.Permanent(inboxtest.ErrHandler)
			}))
			b.Drained()
			require.Equal(b.T, []string{"bad/1"}, b.Dead())
		},
		"park": func(b *queueBench, journal *inboxtest.Journal) {
			resumed := make(chan struct{})
			b.Start(headOf(func(c *queue.Config) { c.Park = true }), onlyHead(journal, func(int) error {
				select {
				case <-resumed:
					return nil
				default:
					return inboxtest.ErrHandler
				}
			}))
			b.parked(3)
			require.Equal(b.T, 3, journal.Times("bad/1"))
			require.Equal(b.T, 3, b.Pending(), "its key waits, and the others do not")
			require.Zero(b.T, journal.Times("bad/2"))
			close(resumed)
			b.Exec(b.T, "UPDATE postbox_messages SET available_at = 0, attempts = 0 WHERE message_id = ?", []byte("bad/1")) // an operator
			b.Drained()
			require.Empty(b.T, b.Dead())
		},
		"park, at once with a permanent error": func(b *queueBench, journal *inboxtest.Journal) {
			b.Start(headOf(func(c *queue.Config) { c.Park = true }), onlyHead(journal, func(int) error { return postbox.Permanent(inboxtest.ErrHandler) }))
			b.parked(1)
			require.Equal(b.T, []string{inboxtest.ErrHandler.Error()}, b.Failures())
			b.Exec(b.T, "DELETE FROM postbox_messages WHERE message_id = ?", []byte("bad/1"))
			b.Drained()
			require.Equal(b.T, 1, journal.Times("bad/1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newQueueBench(t, database)
				b.Put(ids...)
				var journal inboxtest.Journal
				test(b, &journal)
				runs := journal.All()
				require.Equal(t, []string{"bad/2", "bad/3"}, inboxtest.OfKey(runs, "bad")[journal.Times("bad/1"):], "the key waited for its head")
				require.Equal(t, []string{"good/1", "good/2"}, inboxtest.OfKey(runs, "good"))
			})
		})
	}
}

// parked waits until the head stands aside for good, after so many attempts, and nothing else is
// left that can run.
func (b *queueBench) parked(attempts int) {
	b.T.Helper()
	b.Eventually(func() bool {
		return b.Pending() == 3 && b.Count(b.T, "SELECT COUNT(*) FROM postbox_messages WHERE message_id = ? AND attempts = ? AND available_at > ?",
			[]byte("bad/1"), attempts, time.Now().Add(100*365*24*time.Hour).UnixMicro()) == 1
	}, "the head is parked")
	b.Renewed(1) // and stays so
}

// Messages that wait for another attempt, more of them than a page or the memory holds, starve
// nobody. Also covers G8.
func TestQueue_F11_many_waiting_messages_starve_no_other(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for i := range 40 {
			b.Put(fmt.Sprintf("%d/bad", i), fmt.Sprintf("%d/behind", i))
		}
		b.Put(keysOf(5, "good", "fine")...)
		var journal inboxtest.Journal
		config := inboxtest.Quick(func(c *queue.Config) { c.PageSize = 5 })
		b.Start(config, func(msg *message.Message) error {
			journal.Add(msg.UUID)
			if strings.HasSuffix(msg.UUID, "bad") {
				return postbox.RetryAfter(inboxtest.ErrHandler, time.Hour)
			}
			return nil
		})
		b.Eventually(func() bool { return b.Pending() == 80 }, "who does not wait is handled")
		b.Eventually(func() bool { return len(b.Failures()) == 40 }, "all that fail have failed")
		require.Len(t, journal.All(), 50, "nobody behind a failure was handled")
	})
}

func TestQueue_concurrency_is_bounded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newQueueBench(t, database)
		for i := range 30 {
			b.Put(fmt.Sprint(i))
		}
		var atWork atomic.Int32
		full := make(chan struct{})
		isFull := sync.OnceFunc(func() { close(full) })
		b.Start(inboxtest.Quick(func(c *queue.Config) { c.Concurrency = 4 }), func(msg *message.Message) error {
			n := atWork.Add(1)
			defer atWork.Add(-1)
			if n > 4 {
				t.Errorf("%d handlers at a time", n)
			} else if n == 4 {
				isFull()
			}
			return inboxtest.Hold(msg.Context(), full)
		})
		b.Drained()
	})
}
