package admin_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Two drainers work while the topic is paused, and a third one starts during the pause.
// Covers feature W14.
func TestPauseTopic_stops_a_topic_in_all_processes_and_nothing_is_lost(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		h := newHandler(func(*spool.Message) error { return nil })
		b.drainTwice(h, func(*drain.Config) {})
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Topic: "orders"}))
		handledOf := func(topic string) (n int) {
			for id := range h.counts() {
				if strings.HasPrefix(id, topic) {
					n++
				}
			}
			return n
		}
		// Messages of both topics come all the while. A process knows of the pause when it has
		// handled the later one of a key and not the earlier one, which goes to the paused topic.
		written, keys := 0, 20
		require.Eventually(t, func() bool {
			key := strconv.Itoa(written % keys)
			b.append(draft(fmt.Sprintf("orders %04d", written), "orders", key), draft(fmt.Sprintf("invoices %04d", written), "invoices", key))
			written++
			known, counts := map[int]bool{}, h.counts()
			for i := range written {
				if counts[fmt.Sprintf("invoices %04d", i)] > 0 && counts[fmt.Sprintf("orders %04d", i)] == 0 {
					known[i%keys] = true
				}
			}
			return len(known) == keys
		}, patience, time.Millisecond)
		require.Eventually(t, func() bool { return handledOf("invoices") == written }, patience, testdb.PollPause, "the other topic goes on")
		handled := handledOf("orders")
		require.Less(t, handled, written)
		b.drainWith(database.Open(t), h, func(*drain.Config) {})
		require.Never(t, func() bool { return handledOf("orders") > handled }, 500*time.Millisecond, 50*time.Millisecond)

		topics, err := b.operator(database).Paused(t.Context(), b.target)
		require.NoError(t, err)
		require.Len(t, topics, 1)
		require.Equal(t, "orders", topics[0].Topic)
		require.WithinRange(t, topics[0].Since, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		require.Equal(t, 1, b.info().PausedTopics)

		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Topic: "orders"}))
		require.Eventually(t, func() bool { return b.pending() == 0 }, patience, testdb.PollPause)
		for id, times := range h.counts() {
			require.Equal(t, 1, times, id)
		}
		require.Len(t, h.counts(), 2*written)
		require.Zero(t, b.info().PausedTopics)
	})
}

// Covers feature W14.
func TestPauseTopic_repeated_calls_change_nothing_and_mistakes_are_refused(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		for i, say := range []func() error{
			func() error { return b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Topic: "orders"}) },
			func() error { return b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Topic: "Orders"}) },
			func() error { return b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Topic: "orders"}) },
		} {
			require.NoError(t, say())
			require.Equal(t, i+1, b.version(), "drainers notice")
			require.NoError(t, say())
			require.Equal(t, i+1, b.version(), "there is nothing to notice")
		}
		topics, err := b.admin.Paused(t.Context(), b.target)
		require.NoError(t, err)
		require.Len(t, topics, 1)
		require.Equal(t, "Orders", topics[0].Topic, "letters count")

		for _, topic := range []string{"a\x00b", "\xff", "ends with a space ", strings.Repeat("x", 256)} {
			require.ErrorContains(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Topic: topic}), "1 to 255 bytes", topic)
			require.ErrorContains(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Topic: topic}), "1 to 255 bytes", topic)
		}
		queue := admin.Queue("work")
		require.ErrorContains(t, b.admin.Pause(t.Context(), admin.Filter{Target: queue, Topic: "work"}), "pause the queue as a whole, with Pause")
		require.ErrorContains(t, b.admin.Resume(t.Context(), admin.Filter{Target: queue, Topic: "work"}), "with Resume")
		require.ErrorIs(t, b.admin.Pause(t.Context(), admin.Filter{Target: admin.Outbox("missing"), Topic: "orders"}), admin.ErrNotFound)
		_, err = b.admin.Paused(t.Context(), queue)
		require.ErrorIs(t, err, admin.ErrNotFound)
	})
}

func TestPauseTopic_limits_the_paused_topics_of_an_outbox(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		id := b.outboxID()
		const most = 1000
		for i := range most {
			b.run(operatorsql.New(b.statements).PauseTopic(id, fmt.Sprint("topic ", i), operatorsql.Pause{}))
		}
		require.ErrorContains(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Topic: "orders"}), "1000 topics are paused")
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Topic: "topic 7"}), "which is paused already")
		b.append(draft("m", "invoices", ""), draft("held", "topic 999", ""))
		h, stop := b.drain(func(*spool.Message) error { return nil })
		b.eventually(func() bool { return len(h.counts()) == 1 }, "others go on")
		stop()
		require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Topic: "topic 7"}))
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Topic: "orders"}))
		require.Equal(t, most, b.info().PausedTopics)
		require.Equal(t, 1, b.pending())
	})
}
