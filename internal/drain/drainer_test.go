package drain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestDrainer_G2_drains_everything_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages = 500
		b.Append(database.DB, drafts(messages, func(i int) string { return []string{"", "a", "b", "c"}[i%4] })...)
		handler := &recorder{}
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		ids := handler.ids()
		require.Len(t, ids, messages)
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(ids))), messages)
	})
}

func TestDrainer_G3_order_within_a_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var running [5]atomic.Int32
		handler := &recorder{do: func(m *spool.Message) error {
			key := int(m.Key[0] - 'a')
			defer running[key].Add(-1)
			if running[key].Add(1) != 1 {
				return fmt.Errorf("two messages of key %s at a time", m.Key)
			}
			return nil
		}}
		b.start(database.DB, handler, config("one"))
		for start := 0; start < 600; start += 100 { // written while it drains
			part := drafts(start+100, func(i int) string { return string(rune('a' + i%5)) })[start:]
			b.Append(database.DB, part...)
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		seen := map[int][]string{}
		for _, id := range handler.ids() {
			var i int
			_, err := fmt.Sscanf(id, "%d", &i)
			require.NoError(t, err)
			seen[i%5] = append(seen[i%5], id)
		}
		for key, ids := range seen {
			require.Len(t, ids, 120)
			require.True(t, slices.IsSorted(ids), "key %d: %v", key, ids)
		}
		require.Zero(t, b.Dead())
	})
}

// A transaction that took its ids early commits after others have been read. What it wrote must be
// found, and must go before what was written after it committed. Also covers F4.
func TestDrainer_G3_handles_a_late_committer_before_later_messages_of_its_key(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) { // SQLite has one writer: nobody can be late
		b := newBench(t, database)
		handler := &recorder{}
		b.Append(database.DB, draft("0", "other"))
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return len(handler.ids()) == 1 }, "it drains")

		for round := range 20 {
			late, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			b.Append(late, draft(fmt.Sprintf("%d late", round), "key"))
			for i := range 20 {
				b.Append(database.DB, draft(fmt.Sprintf("%d early %d", round, i), fmt.Sprintf("other %d", i)))
			}
			b.Eventually(func() bool { return b.Pending() == 0 }, "the early ones are settled")
			require.NoError(t, late.Commit())
			b.Append(database.DB, draft(fmt.Sprintf("%d then", round), "key"))
			b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
		}
		var ofKey, want []string
		for _, id := range handler.ids() {
			if strings.HasSuffix(id, "late") || strings.HasSuffix(id, "then") {
				ofKey = append(ofKey, id)
			}
		}
		for round := range 20 {
			want = append(want, fmt.Sprintf("%d late", round), fmt.Sprintf("%d then", round))
		}
		require.Equal(t, want, ofKey)
	})
}

// Also covers F11.
func TestDrainer_G3_a_failing_message_holds_back_only_its_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		var healthy atomic.Bool
		handler := &recorder{do: func(m *spool.Message) error {
			if m.Key == "bad" && !healthy.Load() {
				return postbox.RetryAfter(errTest, 20*time.Millisecond)
			}
			return nil
		}}
		c := config("one")
		c.Retry.Attempts = -1
		b.Append(database.DB, drafts(400, func(i int) string { return []string{"bad", "good", "bad", "bad"}[i%4] })...)
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return len(handler.ids()) == 100 }, "the other key flows")
		b.Eventually(func() bool { return handler.tried("00000") > 2 }, "the head is tried again")
		require.Zero(t, handler.tried("00002"), "what stands behind the head waits")
		healthy.Store(true)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		require.True(t, slices.IsSorted(handler.ids()[100:]))
	})
}

// A read compares messages with a few of those that wait for another attempt, and looks for the
// others in an index.
func TestDrainer_G3_reads_leave_out_only_messages_behind_a_waiting_one_of_their_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		for _, keys := range []int{3, 50} {
			b.Append(database.DB, drafts(3*keys, func(i int) string { return fmt.Sprint(i % keys) })...)
			b.Append(database.DB, draft("free", "free"), draft("without key", ""))
			inAnHour := time.Now().Add(time.Hour).UnixMicro()
			for i := keys; i < 2*keys; i++ { // the second of each key
				database.Exec(t, "UPDATE postbox_messages SET state = 2, available_at = ? WHERE message_id = ?", inAnHour, fmt.Appendf(nil, "%05d", i))
			}
			database.MoveWaiting(t)
			handler := &recorder{}
			first := b.start(database.DB, handler, config("one"))
			b.Eventually(func() bool { return len(handler.ids()) == keys+2 }, "the first of each key, and who has none or another")
			b.Eventually(func() bool { return b.Pending() == 2*keys }, "they are settled")
			first.stop(t)
			for _, id := range handler.ids() {
				require.True(t, id == "free" || id == "without key" || id < fmt.Sprintf("%05d", keys), id)
			}
			database.Exec(t, "UPDATE postbox_messages SET available_at = 0 WHERE state = 2")
			second := b.start(database.DB, handler, config("two"))
			b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
			second.stop(t)
			rest := handler.ids()[keys+2:]
			for i := range keys {
				waited, behind := fmt.Sprintf("%05d", keys+i), fmt.Sprintf("%05d", 2*keys+i)
				require.Less(t, slices.Index(rest, waited), slices.Index(rest, behind))
			}
		}
	})
}

func TestDrainer_dead_letter_after_the_last_attempt_then_the_key_goes_on(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{do: func(m *spool.Message) error {
			switch m.MessageID {
			case "00000":
				return errTest
			case "00001":
				return postbox.Permanent(errTest)
			}
			return nil
		}}
		b.Append(database.DB, drafts(10, func(int) string { return "key" })...)
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		require.Equal(t, 2, b.Dead())
		require.Equal(t, 3, handler.tried("00000"))
		require.Equal(t, 1, handler.tried("00001"))
		require.Len(t, handler.ids(), 8)
		require.Equal(t, 4, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
	})
}

func TestDrainer_panic_is_a_failure(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	handler := &recorder{do: func(*spool.Message) error { panic("oh no") }}
	b.Append(database.DB, draft("1", ""))
	b.start(database.DB, handler, config("one"))
	b.Eventually(func() bool { return b.Dead() == 1 }, "it is dead")
	require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE error LIKE 'panic: oh no%'"))
}

func TestDrainer_F12_a_broken_row_is_dead_and_the_others_are_handled(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(3, func(int) string { return "key" })...)
		database.Exec(t, "UPDATE postbox_messages SET metadata = ? WHERE message_id = ?", []byte("no json"), []byte("00001"))
		handler := &recorder{}
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		require.Equal(t, []string{"00000", "00002"}, handler.ids())
		require.Equal(t, 1, b.Dead())
	})
}

func TestDrainer_G8_large_payload_comes_whole(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		large := strings.Repeat("x", 100<<10)
		d := draft("large", "key")
		d.Payload, d.Metadata = []byte(large), map[string]string{"a": "b"}
		b.Append(database.DB, d)
		var got atomic.Value
		handler := &recorder{do: func(m *spool.Message) error { got.Store(string(m.Payload) + m.Metadata["a"]); return nil }}
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
		require.Equal(t, large+"b", got.Load())
	})
}

func TestDrainer_G11_delay_by_the_database_clock(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		delayed, far, past := draft("delayed", "key"), draft("far", "key"), draft("past", "key")
		delayed.Delay = 2 * time.Second
		far.Delay = time.Hour
		past.Due = time.Now().Add(-time.Hour)
		b.Append(database.DB, delayed, far, past, draft("now", "key"))
		handler := &recorder{}
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return len(handler.ids()) == 3 }, "three are due")
		require.Equal(t, "delayed", handler.ids()[2])
		b.Eventually(func() bool { return b.Pending() == 1 }, "the fourth is not")
	})
}

func TestDrainer_G10_one_connection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.DB.SetMaxOpenConns(1)
		b := newBench(t, database)
		handler := &recorder{do: func(m *spool.Message) error {
			if m.MessageID == "00000" {
				return errTest
			}
			return nil
		}}
		large := draft("large", "")
		large.Payload = make([]byte, 100<<10)
		b.Append(database.DB, append(drafts(50, func(i int) string { return fmt.Sprint(i % 3) }), large)...)
		r := b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return len(handler.ids()) == 50 && b.Dead() == 1 }, "all messages are settled")
		r.stop(t)
		require.Zero(t, b.Pending())
	})
}

func TestDrainer_excluded_topic_waits_and_comes_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		handler := &recorder{excluded: []string{"broken"}}
		list := drafts(200, func(i int) string { return fmt.Sprint(i % 7) })
		for i := range list {
			if i%2 == 0 {
				list[i].Topic = "broken"
			}
		}
		b.Append(database.DB, list...)
		r := b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return len(handler.ids()) == 100 }, "the other topic flows")
		b.Eventually(func() bool { return b.Pending() == 100 }, "and is settled")
		handler.mu.Lock()
		handler.excluded = nil
		handler.mu.Unlock()
		r.Rescan()
		b.Eventually(func() bool { return b.Pending() == 0 }, "all messages are settled")
	})
}

func TestDrainer_G12_stops_cleanly_with_handlers_under_way(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(100, func(i int) string { return fmt.Sprint(i) })...)
		entered, proceed := make(chan struct{}, 100), make(chan struct{})
		handler := &recorder{do: func(*spool.Message) error {
			entered <- struct{}{}
			<-proceed
			return nil
		}}
		r := b.start(database.DB, handler, config("one"))
		for range config("").Workers {
			<-entered
		}
		r.cancel()
		close(proceed)
		r.stop(t)
		require.Equal(t, 100, b.Pending()+len(handler.ids()), "what was handled is settled, the rest is still there")
		require.NotEmpty(t, handler.ids())
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder IS NOT NULL"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_members"))
	})
}

func TestDrainer_G12_cancels_handlers_after_the_close_timeout(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	b.Append(database.DB, draft("1", ""))
	entered := make(chan struct{})
	c := config("one")
	c.Close = 50 * time.Millisecond
	r := b.start(database.DB, stubborn(entered), c)
	<-entered
	r.stop(t)
	require.Equal(t, 1, b.Pending(), "it comes again")
}

// stubborn is a handler that ends with its context only.
type stubborn chan struct{}

func (s stubborn) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	close(s)
	<-ctx.Done()
	return make([]spool.Outcome, len(batch))[:0:0]
}

func (s stubborn) Excluded() []string { return nil }
