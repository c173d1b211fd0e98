package drain_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// setLanes gives the spool another number of lanes, and returns how many messages it moved.
func (b *bench) setLanes(ctx context.Context, n int) (moved int, err error) {
	operator := operate.NewOperator(b.Database.DB, b.Statements, operate.NewAuditor(b.Statements, ""), watermill.NopLogger{}).Settling(0)
	return operator.SetLanes(ctx, b.Spool.Name(), n, func(operate.Progress) {})
}

// inLanes returns how many messages are in the lanes from first up to last.
func (b *bench) inLanes(first, last int) int {
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_messages WHERE lane BETWEEN ? AND ?", first, last)
}

// sequences is a handler that remembers the messages of each key, and whether two were handled at a time.
type sequences struct {
	recorder

	mu       sync.Mutex
	running  map[string]int
	together []string
}

func newSequences() *sequences {
	s := &sequences{running: map[string]int{}}
	s.do = func(m *spool.Message) error {
		s.begin(m.Key)
		defer s.end(m.Key)
		return nil
	}
	return s
}

func (s *sequences) begin(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[key]++; s.running[key] > 1 {
		s.together = append(s.together, key)
	}
}

func (s *sequences) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[key]--
}

// check requires that each of n messages was handled once, and those of each key in the order of their ids, which are "key/number".
func (s *sequences) check(t *testing.T, n int) {
	t.Helper()
	ids := s.ids()
	require.Len(t, ids, n)
	byKey := map[string][]string{}
	for _, id := range ids {
		key, _, _ := strings.Cut(id, "/")
		byKey[key] = append(byKey[key], id)
	}
	for key, of := range byKey {
		require.True(t, slices.IsSorted(of), "key %s: %v", key, of)
		require.Len(t, slices.Compact(of), len(of), "key %s: %v", key, of)
	}
	require.Empty(t, s.together, "keys of which two messages were handled at a time")
}

// One process that writes messages keeps the first number of lanes, another one reads it anew each time, and they write messages of the same
// keys in turn. Also covers G2, G6.
func TestLanes_G3_change_while_messages_are_written_and_handled(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newSequences()
		b.Append(database.DB, draft("x/00000", "x"))
		b.start(database.DB, handler, config("one"))
		b.start(database.Open(t), handler, config("two"))
		changed := make(chan error, 1)
		go func() {
			var err error
			for _, n := range []int{3, 2 * lanes, 5} {
				if err == nil {
					_, err = b.setLanes(t.Context(), n)
				}
			}
			changed <- err
		}()
		written := 1
		for done := false; !done || written < 200; written++ {
			into := b.Spool // stale
			if written%2 == 0 {
				into = spool.New(b.Statements, b.Spool.Name(), lanes)
			}
			key := string(rune('a' + written%6/2)) // each key from both
			require.NoError(t, into.Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft(fmt.Sprintf("%s/%05d", key, written), key)}))
			select {
			case err := <-changed:
				require.NoError(t, err)
				done = true
			default:
			}
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		handler.check(t, written)
		require.Equal(t, 5, database.Count(t, "SELECT lanes FROM postbox_spools"))
		b.Eventually(func() bool { return b.held("one")+b.held("two") == 5 && b.held("one") > 0 && b.held("two") > 0 }, "both share the new lanes")
	})
}

// A transaction writes with the old number and stays open while the number is changed. Another one that begins after its commit writes
// to the same keys. Also covers F4.
func TestLanes_G3_an_open_transaction_with_the_old_number_commits_after_the_change(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := newSequences()
		b.start(database.DB, handler, config("one"))
		b.Append(database.DB, draft("a/0", "a"))
		late, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = late.Rollback() }()
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, key := range keys {
			b.Append(late, draft(key+"/1", key))
		}
		_, err = b.setLanes(t.Context(), lanes/2)
		require.NoError(t, err)
		fresh := spool.New(b.Statements, b.Spool.Name(), lanes)
		write := func(number string) {
			for _, key := range keys {
				require.NoError(t, fresh.Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft(key+"/"+number, key)}))
			}
		}
		write("0b")
		b.Eventually(func() bool { return b.Pending() == 0 }, "the open transaction holds nothing up")
		require.NoError(t, late.Commit())
		write("2")
		b.Eventually(func() bool { return b.Pending() == 0 }, "its messages are moved and handled")
		ids := slices.DeleteFunc(handler.ids(), func(id string) bool { return strings.HasSuffix(id, "0b") }) // which was free to go first
		handler.handled = ids
		handler.check(t, 1+2*len(keys))
	})
}

// A handler is running with a message of an old lane when the number is changed. The next message of its key, in a new lane of another
// process, waits for it.
func TestLanes_G3_a_message_that_is_being_handled_keeps_its_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		entered, proceed := make(chan struct{}), make(chan struct{})
		slow, other := newSequences(), newSequences()
		slow.do = func(m *spool.Message) error {
			if m.MessageID == "a/1" {
				close(entered)
				<-proceed
			}
			return nil
		}
		b.start(database.DB, slow, config("slow"))
		b.Append(database.DB, draft("a/1", "a"))
		<-entered
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := b.setLanes(ctx, 4); ended <- err }()
		b.Eventually(func() bool { return database.Count(t, "SELECT lanes FROM postbox_spools") == 4 }, "the number is changed")
		b.start(database.Open(t), other, config("other"))
		fresh := spool.New(b.Statements, b.Spool.Name(), lanes)
		require.NoError(t, fresh.Append(t.Context(), database.DB, spool.Run, []spool.Draft{draft("a/2", "a")}))
		b.Eventually(func() bool { return b.heldFrom("other", spool.MaxLanes) > 0 }, "the other process has new lanes")
		for range 2 { // it reads in between
			renewed := b.lease("other")
			b.Eventually(func() bool { return b.lease("other") > renewed }, "it renews its leases")
		}
		require.Empty(t, other.ids())
		stop()
		err := <-ended
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "held by slow")
		close(proceed)
		b.Eventually(func() bool { return b.Pending() == 0 }, "both are handled")
		require.Equal(t, []string{"a/1", "a/2"}, append(slow.ids(), other.ids()...))
	})
}

func (b *bench) heldFrom(holder string, first int) int {
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = ? AND lane >= ?", holder, first)
}

// lease returns when the leases of a holder end.
func (b *bench) lease(holder string) int {
	return b.Database.Count(b.T, "SELECT MAX(expires_at) FROM postbox_lanes WHERE holder = ?", holder)
}

// A process with lanes has crashed, and an operator changes the number, is interrupted, and tries again. No process drains meanwhile. Messages
// wait in each state.
func TestLanes_G3_an_interrupted_change_goes_on_with_a_second_call(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		probe := b.start(database.DB, &recorder{}, config("probe"))
		b.Eventually(func() bool { return b.held("probe") == lanes }, "the lanes exist")
		probe.stop(t)
		for i := range 40 {
			key := string(rune('a' + i%8))
			d := draft(fmt.Sprintf("%s/%05d", key, i), key)
			if i < 8 { // due, and before the others of its key
				d.Due = time.UnixMicro(1)
			}
			b.Append(database.DB, d)
		}
		b.Append(database.DB, draft("none/0", ""), draft("none/1", ""))
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'gone', token = token + 1, expires_at = ?", time.Now().Add(time.Hour).UnixMicro())

		operator := operate.NewOperator(database.DB, b.Statements, operate.NewAuditor(b.Statements, ""), watermill.NopLogger{}).Settling(0)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		_, err := operator.SetLanes(ctx, b.Spool.Name(), 3, func(p operate.Progress) {
			if p.Waits != "" {
				stop()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "held by gone")
		require.Equal(t, 42, b.inLanes(0, lanes-1), "nothing leaves a lane that is held")

		database.Exec(t, "UPDATE postbox_lanes SET expires_at = 1 WHERE holder = 'gone' AND lane < 4")
		cut, end := context.WithCancel(t.Context())
		moved, err := operator.SetLanes(cut, b.Spool.Name(), 3, func(operate.Progress) { end() })
		require.ErrorIs(t, err, context.Canceled)
		require.Positive(t, moved)
		require.Equal(t, moved, b.inLanes(spool.MaxLanes, spool.MaxLanes+2))
		require.Equal(t, 42-moved, b.inLanes(0, lanes-1))

		database.Exec(t, "UPDATE postbox_lanes SET expires_at = 1 WHERE holder = 'gone'")
		rest, err := b.setLanes(t.Context(), 3)
		require.NoError(t, err)
		require.Equal(t, 42, moved+rest)
		require.Equal(t, 42, b.inLanes(spool.MaxLanes, spool.MaxLanes+2))
		require.Equal(t, 1, database.Count(t, "SELECT SUM(affected) FROM postbox_audit WHERE action = 'set lanes'"))
		require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_audit WHERE action = 'set lanes'"))

		handler := newSequences()
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		handler.check(t, 42)
	})
}

// A message failed, and its key waits behind it. Also covers F36: a drainer that starts with another number.
func TestLanes_G3_a_key_waits_for_its_failed_message_in_the_new_lane(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("a/1", "a"), draft("a/2", "a"), draft("b/1", "b"))
		database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = ? WHERE message_id = ?",
			time.Now().Add(time.Hour).UnixMicro(), []byte("a/1"))
		moved, err := b.setLanes(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, 3, moved)
		handler := newSequences()
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return len(handler.ids()) == 1 }, "another key goes on")
		require.Equal(t, []string{"b/1"}, handler.ids())
		database.Exec(t, "UPDATE postbox_messages SET available_at = 1 WHERE state = 2")
		b.Eventually(func() bool { return b.Pending() == 0 }, "the key goes on")
		require.Equal(t, []string{"b/1", "a/1", "a/2"}, handler.ids())
	})
}

// Numbers of lanes that were used are never used again. With the last ones that are left, all statements still work.
func TestLanes_are_refused_when_their_numbers_are_used_up(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("1", "a"))
		for _, n := range []int{0, 257, -1} {
			_, err := b.setLanes(t.Context(), n)
			require.ErrorIs(t, err, operate.ErrInvalid)
		}
		database.Exec(t, "UPDATE postbox_spools SET first_lane = 32750")
		database.Exec(t, "UPDATE postbox_messages SET lane = lane + 32750")
		_, err := b.setLanes(t.Context(), 10)
		require.ErrorIs(t, err, operate.ErrInvalid)
		require.ErrorContains(t, err, "used up")
		_, err = b.setLanes(t.Context(), 9)
		require.NoError(t, err)
		require.Equal(t, 1, b.inLanes(32758, 32766))
		b.start(database.DB, newSequences(), config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "the message is read")
	})
}

// A message waits under a unique key. It is found where it was moved, whatever number of lanes the producer knows.
func TestLanes_G2_a_unique_key_finds_a_message_that_was_moved(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.writeUnique(b.Spool, "a1", "a", false)
		b.writeUnique(b.Spool, "b1", "key", false)
		b.writeUnique(b.Spool, "c1", "c", false)
		for _, n := range []int{3, 7} {
			_, err := b.setLanes(t.Context(), n)
			require.NoError(t, err)
		}
		for i, producer := range []*spool.Spool{b.Spool, spool.New(b.Statements, b.Spool.Name(), lanes)} { // the first one is stale
			require.NotEmpty(t, b.writeUnique(producer, "a2", "a", false), "producer %d", i)
			require.NotEmpty(t, b.writeUnique(producer, "b2", "another key", false), "producer %d", i)
		}
		require.Empty(t, b.writeUnique(b.Spool, "c2", "c", true))
		handler := newSequences()
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
		require.ElementsMatch(t, []string{"a1", "b1", "c2"}, handler.ids())
	})
}

// A producer may use a layout for some seconds that the database has lost by a restore. Its messages are moved to lower lanes then.
func TestLanes_G4_a_unique_key_finds_a_message_that_was_moved_down(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		id, err := b.Spool.Open(t.Context(), database.DB)
		require.NoError(t, err)
		const lostLanes = 64
		lost := spool.Registered(b.Statements, b.Spool.Name(), spool.Found{ID: id, Layout: dialect.Layout{First: spool.MaxLanes, Lanes: lostLanes}})
		keys := map[string][2]string{ // the ordering keys of the message that waits, and of the next one
			"a": {"a", "a"}, "b": {"b", "another"}, "c": {"c", ""}, "d": {"", "d"}, "e": {}, "f": {}, "g": {}, "h": {},
		}
		for unique, ordering := range keys {
			b.writeUnique(lost, unique+"1", ordering[0], false)
		}
		require.Equal(t, len(keys), b.inLanes(spool.MaxLanes, spool.MaxLanes+lostLanes-1))
		for moved := 1; moved > 0; {
			moved, err = b.Spool.MoveFromOldLanes(t.Context(), database.DB, b.Spool.Layout())
			require.NoError(t, err)
		}
		require.Zero(t, b.inLanes(spool.MaxLanes, spool.MaxLanes+lostLanes-1))
		for unique, ordering := range keys {
			require.NotEmpty(t, b.writeUnique(b.Spool, unique+"2", ordering[1], false), "the message of key %s waits", unique)
		}
		for unique, ordering := range keys {
			require.Empty(t, b.writeUnique(b.Spool, unique+"3", ordering[1], true))
		}
		require.Equal(t, len(keys), b.Pending(), "each message has replaced the one before")
	})
}

// writeUnique stores a message under a unique key, the first letter of its id.
func (b *bench) writeUnique(into *spool.Spool, id, key string, replace bool) (skipped []int) {
	b.T.Helper()
	d := draft(id, key)
	d.UniqueKey, d.Replace = "unique "+id[:1], replace
	require.NoError(b.T, spool.InTx(b.T.Context(), b.Database.DB, b.Statements, func(tx *sql.Tx) (err error) {
		skipped, err = into.AppendUnique(b.T.Context(), tx, spool.Unprepared, []spool.Draft{d})
		return err
	}))
	return skipped
}
