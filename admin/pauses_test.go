package admin_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// applied is how long drainers may take to notice what an operator says, on a machine that has
// other things to do.
const applied = 10 * time.Second

// order remembers in which order messages were handled.
type order struct {
	mu   sync.Mutex
	list []string
}

func (o *order) note(m *spool.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, m.MessageID)
}

func (o *order) ids() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.list)
}

// drainTwice starts two drainers, each with a handle of its own on the database.
func (b *bench) drainTwice(h drain.Handler, change func(*drain.Config)) {
	b.Helper()
	b.drainWith(b.database.DB, h, change)
	b.drainWith(b.database.Open(b.T), h, change)
	b.eventually(func() bool {
		return b.database.Count(b.T, "SELECT COUNT(DISTINCT holder) FROM postbox_lanes WHERE holder IS NOT NULL") == 2
	}, "both have lanes")
}

// Covers feature W14.
func TestPause_stops_two_drainers_within_seconds(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(numbered(30)...)
		h := newHandler(func(*spool.Message) error { return nil })
		b.drainTwice(h, func(*drain.Config) {})
		b.eventually(func() bool { return b.pending() == 0 }, "it flows")

		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, All: true}))
		paused := time.Now()
		written, before, since := 30, 0, paused
		// Messages come all the while, on all lanes: from some moment on none of them is handled
		// any more. A busy machine may let drainers rest before that.
		const quiet = 1500 * time.Millisecond
		require.Eventually(t, func() bool {
			for range lanes {
				if time.Since(since) < quiet/5 || written == before {
					b.append(draft(fmt.Sprintf("%04d", written), "orders", strconv.Itoa(written)))
					written++
				}
			}
			if handled := len(h.counts()); handled > before {
				before, since = handled, time.Now()
			}
			return written > before && time.Since(since) > quiet
		}, applied+quiet, 10*time.Millisecond)
		t.Logf("applied after %s", since.Sub(paused))
		handled := len(h.counts())
		require.WithinRange(t, b.info().Pause.Since, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		require.Equal(t, written-handled, b.pending(), "nothing is lost")

		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, All: true}))
		require.Eventually(t, func() bool { return b.pending() == 0 }, applied, 2*time.Millisecond)
		require.True(t, b.info().Pause.Since.IsZero())
		require.Len(t, h.counts(), written)
	})
}

// Covers feature W14.
func TestPause_repeated_calls_change_nothing(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		for i, say := range []func() error{
			func() error { return b.admin.Pause(t.Context(), admin.Filter{Target: b.target, All: true}) },
			func() error { return b.admin.Resume(t.Context(), admin.Filter{Target: b.target, All: true}) },
			func() error { return b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: "key"}) },
			func() error { return b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: "key"}) },
			func() error {
				return storeSettings(t.Context(), b.admin, b.target, admin.Settings{Attempts: 7})
			},
			func() error { return storeSettings(t.Context(), b.admin, b.target, admin.Settings{}) },
		} {
			require.NoError(t, say())
			require.Equal(t, i+1, b.version(), "drainers notice")
			info := b.info()
			keys, err := b.admin.Paused(t.Context(), b.target)
			require.NoError(t, err)

			require.NoError(t, say())
			require.Equal(t, i+1, b.version(), "there is nothing to notice")
			require.Equal(t, info, b.info())
			again, err := b.admin.Paused(t.Context(), b.target)
			require.NoError(t, err)
			require.Equal(t, keys, again)
		}
		for _, err := range []error{
			b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: ""}), b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: ""}),
		} {
			require.ErrorContains(t, err, "Reschedule")
		}
	})
}

// Covers feature W14.
func TestPauseKey_holds_back_its_key_and_no_other(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		const odd = "\x00\xff"
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: odd}))
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: "second"}))
		for i, key := range []string{odd, "other", odd, "", "second"} {
			b.append(draft(strconv.Itoa(i), "orders", key))
		}
		scheduled := draft("scheduled", "orders", odd)
		scheduled.Delay = time.Millisecond
		b.append(scheduled)
		h := newHandler(func(*spool.Message) error { return nil })
		b.drainTwice(h, func(*drain.Config) {})
		b.eventually(func() bool { return len(h.counts()) == 2 }, "what is not paused goes on")
		require.Never(t, func() bool { return len(h.counts()) > 2 }, 1500*time.Millisecond, 50*time.Millisecond)
		require.Equal(t, map[string]int{"1": 1, "3": 1}, h.counts())

		keys, err := b.admin.Paused(t.Context(), b.target)
		require.NoError(t, err)
		require.Len(t, keys, 2)
		require.ElementsMatch(t, []string{odd, "second"}, []string{keys[0].Key, keys[1].Key}, "both may be of the same millisecond")
		require.WithinRange(t, keys[0].Since, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		require.Equal(t, 2, b.info().PausedKeys)

		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: odd}))
		require.Eventually(t, func() bool { return len(h.counts()) == 5 }, applied, 2*time.Millisecond)
		b.eventually(func() bool { return b.pending() == 1 }, "the other key stays paused")

		// While it drains, too: what it has read already is read again.
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: odd}))
		require.Eventually(t, func() bool {
			b.append(draft("late", "orders", odd), draft("late too", "orders", "other"))
			return b.pending() > 2
		}, applied, 50*time.Millisecond)
	})
}

// Covers feature N8.
func TestResumeKey_gives_a_parked_head_all_its_attempts_again(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var healthy atomic.Bool
		var handled order
		h := newHandler(func(m *spool.Message) error {
			if m.Key == "bad" && !healthy.Load() {
				return errBroker
			}
			handled.note(m)
			return nil
		})
		b.append(draft("1", "orders", "bad"), draft("2", "orders", "bad"), draft("3", "orders", "good"))
		b.drainTwice(h, func(c *drain.Config) { c.Head = drain.HeadPark })
		parked := func() []admin.Message {
			list, _, err := b.admin.Messages(t.Context(), admin.Filter{Target: b.target, Status: admin.Parked})
			require.NoError(t, err)
			return list
		}
		b.eventually(func() bool { return len(parked()) == 1 && len(handled.ids()) == 1 }, "the head is parked, the other key flows")
		head := parked()[0]
		require.Equal(t, 2, head.Attempts)
		require.True(t, head.DueAt.IsZero())
		require.Equal(t, 1, b.info().Parked)
		require.Zero(t, b.info().Dead)

		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: "good"}))
		require.Len(t, parked(), 1, "another key")
		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: "bad"}))
		b.eventually(func() bool {
			one, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: head.ID})
			require.NoError(t, err)
			return one.Status == admin.Parked && len(one.Failures) == 5
		}, "it was tried as often as before, and is parked again")
		one, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: head.ID})
		require.NoError(t, err)
		var attempts []int
		for _, failure := range one.Failures {
			attempts = append(attempts, failure.Attempt)
		}
		require.Equal(t, []int{1, 2, 0, 1, 2}, attempts)
		require.Equal(t, "resumed by an operator", one.Failures[2].Error)

		healthy.Store(true)
		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: "bad"}))
		b.eventually(func() bool { return b.pending() == 0 }, "the key goes on")
		require.Equal(t, []string{"3", "1", "2"}, handled.ids())
	})
}

// Covers feature N8.
func TestResumeKey_resumes_all_parked_messages_of_an_unordered_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages = 250 // more than two pages
		for i := range messages {
			b.append(draft(strconv.Itoa(i), "orders", []string{"key", "other"}[i%2]))
		}
		b.exec(database.Bind("UPDATE postbox_messages SET state = 2, attempts = 9, starts = 1, available_at = available_at + ?"), int64(1)<<62)
		database.MoveWaiting(t)
		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: "key"}))
		require.Equal(t, messages/2, database.Count(t,
			"SELECT COUNT(*) FROM postbox_messages WHERE key_hash = ? AND attempts = 0 AND starts = 0 AND available_at <= ?",
			keyhash.Of("key"), time.Now().Add(time.Hour).UnixMicro()))
		require.Equal(t, messages/2, b.info().Parked)
		require.Equal(t, messages/2, database.Count(t, "SELECT COUNT(DISTINCT subject) FROM postbox_failures WHERE attempt = 0"))
	})
}

// Operators contradict each other while two processes drain, and keys are paused and resumed:
// nothing is lost, nothing handled twice, and each key keeps its order. Also covers feature W14.
func TestPause_F22_operators_contradict_each_other_while_processes_drain(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		var handled order
		h := newHandler(func(m *spool.Message) error { handled.note(m); return nil })
		b.drainTwice(h, func(*drain.Config) {})
		var operators sync.WaitGroup
		errs := make(chan error, 1000)
		const rounds = 15
		for i := range 3 {
			operator := b.operator(database)
			key := strconv.Itoa(i)
			operators.Go(func() {
				for range rounds {
					errs <- operator.Pause(t.Context(), admin.Filter{Target: b.target, All: true})
					errs <- operator.Pause(t.Context(), admin.Filter{Target: b.target, Key: key})
					errs <- operator.Resume(t.Context(), admin.Filter{Target: b.target, All: true})
					errs <- operator.Pause(t.Context(), admin.Filter{Target: b.target, Key: "0"})
					errs <- operator.Resume(t.Context(), admin.Filter{Target: b.target, Key: key})
				}
			})
		}
		const messages = 300
		for start := 0; start < messages; start += 20 {
			b.append(numbered(start + 20)[start:]...)
		}
		operators.Wait()
		close(errs)
		for err := range errs {
			require.NoError(t, err)
		}
		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, All: true}))
		for i := range 3 {
			require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Key: strconv.Itoa(i)}))
		}
		b.eventually(func() bool { return b.pending() == 0 }, "all messages are handled")
		require.Zero(t, b.info().PausedKeys)
		ids := handled.ids()
		times := map[string]int{}
		for _, id := range ids {
			times[id]++
		}
		for _, m := range numbered(messages) {
			require.Equal(t, 1, times[m.MessageID], "so many times message %s was handled", m.MessageID)
		}
		require.Len(t, ids, messages)
		last := map[int]string{}
		for _, id := range ids {
			n, err := strconv.Atoi(id)
			require.NoError(t, err)
			require.Greater(t, id, last[n%3], "in the order of its key, once")
			last[n%3] = id
		}
	})
}
