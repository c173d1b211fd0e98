package drain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func (b *bench) pauseTopic(topic string) {
	b.T.Helper()
	b.sayOf("INSERT INTO postbox_topic_pauses (spool, topic, paused_at) SELECT id, ?, 1 FROM postbox_spools WHERE name = ?", topic, b.Spool.Name())
}

func (b *bench) resumeTopic(topic string) {
	b.T.Helper()
	b.sayOf("DELETE FROM postbox_topic_pauses WHERE topic = ?", topic)
}

// ofTopics gives messages their topics in turn, which their ids begin with.
func ofTopics(list []spool.Draft, topics ...string) []spool.Draft {
	for i := range list {
		list[i].Topic = topics[i%len(topics)]
		list[i].MessageID = list[i].Topic + " " + list[i].MessageID
	}
	return list
}

func startingWith(ids []string, topic string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, topic+" ") })
}

// Far more messages of the paused topic wait than a drainer has in memory, before, among and after
// those of others, in the same lanes and of the same keys. Another process goes on with them after
// the first has ended. Also covers feature W14.
func TestDrainer_G3_a_paused_topic_holds_up_no_other_and_keeps_its_order(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		c := config("one")
		const messages = 600
		require.Less(t, 3*c.PageSize, messages/2)
		key := func(i int) string { return fmt.Sprint(i / 2 % 7) } // each key has messages of both topics
		b.Append(database.DB, ofTopics(drafts(messages, key)[:messages/2], "held")...)
		b.Append(database.DB, ofTopics(drafts(messages, key)[messages/2:], "held", "open")...)
		b.pauseTopic("held")
		handler := &recorder{}
		first := b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == messages*3/4 }, "the other topic flows")
		b.Append(database.DB, ofTopics(drafts(messages+20, key)[messages:], "held", "open")...)
		b.Eventually(func() bool { return b.Pending() == messages*3/4+10 }, "and its new messages do")
		require.Empty(t, startingWith(handler.ids(), "held"))
		b.Eventually(func() bool { _, _, waiting := first.Applied(); return waiting == 0 }, "messages of the paused topic are not in memory")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0 OR state > 0"))
		first.stop(t)

		second := b.start(database.DB, handler, config("two"))
		signal(t, second.Ready(), "the second process has read")
		b.Append(database.DB, ofTopics(drafts(messages+30, key)[messages+20:], "open")...)
		b.Eventually(func() bool { return b.Pending() == messages*3/4+10 }, "a process that starts later leaves it out, too")
		b.resumeTopic("held")
		b.Eventually(func() bool { return b.Pending() == 0 }, "the topic goes on")
		for _, topic := range []string{"held", "open"} {
			for k := range 7 {
				var ofKey []string
				for _, id := range startingWith(handler.ids(), topic) {
					var n int
					_, err := fmt.Sscanf(id, topic+" %d", &n)
					require.NoError(t, err)
					if key(n) == fmt.Sprint(k) {
						ofKey = append(ofKey, id)
					}
				}
				require.True(t, slices.IsSorted(ofKey), "%s of key %d: %v", topic, k, ofKey)
			}
		}
		require.Len(t, handler.ids(), messages+30, "each message once")
	})
}

// The topic is paused while one of its messages runs and others wait in the memory of the drainer
// behind it. Also covers feature W14.
func TestDrainer_with_a_paused_topic_finishes_running_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, ofTopics(drafts(10, func(int) string { return "key" }), "held")...)
		handler := newStanding()
		c := config("one")
		c.BatchSize, c.PageSize = 1, 10*lanes // one read has all ten
		r := b.start(database.DB, handler, c)
		signal(t, handler.entered, "one runs")
		b.Eventually(func() bool { _, _, waiting := r.Applied(); return waiting == 9 }, "nine wait")
		b.pauseTopic("held")
		b.Eventually(func() bool { _, _, waiting := r.Applied(); return waiting == 0 }, "the pause is applied")
		require.Equal(t, 10, b.Pending(), "nothing changes")
		handler.proceed <- spool.Outcome{Verdict: spool.Done}
		b.Eventually(func() bool { return b.Pending() == 9 }, "the running message is settled")
		b.never(func() bool { return len(handler.entered) > 0 }, 100*time.Millisecond, "the others wait")
		b.resumeTopic("held")
		for range 9 {
			signal(t, handler.entered, "they go on")
			handler.proceed <- spool.Outcome{Verdict: spool.Done}
		}
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
	})
}

// A message of the paused topic that waits for its next attempt is not tried, and holds back its
// key in other topics. Also covers feature W14.
func TestDrainer_G3_a_failed_message_of_a_paused_topic_keeps_its_key_waiting(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, ofTopics([]spool.Draft{draft("first", "key")}, "held")...)
		c := config("one")
		c.Retry.Base, c.Retry.Cap = time.Hour, time.Hour
		handler := newChoosy("held first", errTest)
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2") == 1 }, "it has failed once")
		b.pauseTopic("held")
		b.Append(database.DB, ofTopics([]spool.Draft{draft("second", "key"), draft("third", "other")}, "open")...)
		b.Eventually(func() bool { return slices.Equal(handler.ids(), []string{"open third"}) }, "another key goes on")
		database.Exec(t, "UPDATE postbox_messages SET available_at = 0 WHERE state = 2")
		b.never(func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts <> 1 AND state = 2") > 0 || len(handler.ids()) > 1
		}, 500*time.Millisecond, "it is not tried when its time comes, and its key waits")
		handler.healthy.Store(true)
		b.resumeTopic("held")
		b.Eventually(func() bool { return b.Pending() == 0 }, "the topic goes on")
		require.Equal(t, []string{"open third", "held first", "open second"}, handler.ids())
	})
}
