package drain_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestDrainer_G9_history_keeps_finished_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		one := draft("one", "key")
		one.Metadata = map[string]string{"a": "b"}
		b.Append(database.DB, one)
		failed := false
		handler := &recorder{do: func(*spool.Message) error {
			if !failed {
				failed = true
				return errTest
			}
			return nil
		}}
		c := config("one")
		c.History = time.Hour
		b.start(database.DB, handler, c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "it is done")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_history WHERE message_id = ? AND ordering_key = ? "+
			"AND payload = ? AND metadata = ? AND topic = 'orders' AND attempts = 2 AND done_at >= created_at",
			[]byte("one"), []byte("key"), one.Payload, []byte(`{"a":"b"}`)))
	})
}

// At each moment every message written is done, pending or dead, whichever way it took: at once,
// after another attempt, in its handler's transaction, dead, parked, or dead and requeued.
func TestDrainer_G9_written_is_done_and_pending_and_dead_at_any_time(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.effects()
		const messages = 120
		var healthy atomic.Bool
		sometimes := func(_ context.Context, m *spool.Message) error {
			switch {
			case m.MessageID[4] == '3' && m.Attempts == 0:
				return errTest
			case m.MessageID[4] == '7' && !healthy.Load():
				return postbox.Permanent(errTest)
			}
			return nil
		}
		keep := func(c *drain.Config) { c.History = time.Hour }
		plain := config("plain")
		keep(&plain)
		b.Append(database.DB, drafts(messages, func(i int) string { return []string{"", "a", "b"}[i%3] })...)
		b.start(database.DB, &recorder{do: func(m *spool.Message) error { return sometimes(nil, m) }}, plain)
		b.spawn("transactional", func(p *process) drain.Handler { return &effector{p: p, do: sometimes} }, keep)

		account := func() (done, pending, dead int) {
			err := database.DB.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM postbox_history), "+
				"(SELECT COUNT(*) FROM postbox_messages), (SELECT COUNT(*) FROM postbox_dead_letters)").Scan(&done, &pending, &dead)
			require.NoError(t, err)
			require.Equal(t, messages, done+pending+dead, "%d done, %d pending, %d dead", done, pending, dead)
			return done, pending, dead
		}
		b.Eventually(func() bool {
			_, pending, _ := account()
			return pending == 0
		}, "all are through")
		done, _, dead := account()
		require.Equal(t, messages/10, dead)
		require.Equal(t, done, database.Count(t, "SELECT COUNT(DISTINCT message_id) FROM postbox_history"), "each can be listed, once")

		healthy.Store(true)
		for range dead {
			letter := database.Count(t, "SELECT MIN(id) FROM postbox_dead_letters")
			require.NoError(t, enginetest.Requeue(t.Context(), database, b.Spool, int64(letter)))
			account()
		}
		b.Eventually(func() bool {
			done, _, _ := account()
			return done == messages
		}, "all are done")
	})
}

// A lane that is lost between the two statements that move a message leaves it where it is.
// Also covers F15.
func TestDrainer_G9_a_process_that_lost_the_lease_writes_no_history(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("one", ""))
		handler := newStanding()
		p := b.spawn("slow", handler.of, func(c *drain.Config) { c.History = time.Hour })
		signal(t, handler.entered, "it is handled")
		b.own("holder = 'slow'")
		handler.proceed <- spool.Outcome{Verdict: spool.Done}
		p.stop(t)
		require.Zero(t, b.history())
		require.Equal(t, 1, b.Pending())
		require.Zero(t, database.Count(t, fmt.Sprintf("SELECT COUNT(*) FROM postbox_messages WHERE state <> %d", dialect.StateReady)))
	})
}

// A database that gives out ids again, such as a logical replica whose sequences were not set, has
// messages with ids that stand in the history. Those are other messages, from another time.
func TestDrainer_G9_a_reused_id_in_the_history_stops_nothing(t *testing.T) {
	t.Parallel()
	for name, sameTime := range map[string]bool{"another time": false, "same time": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				for _, transactional := range []bool{false, true} {
					t.Run(fmt.Sprintf("transactional %t", transactional), func(t *testing.T) {
						b := newBench(t, database)
						database.Exec(t, "DELETE FROM postbox_history")
						b.Append(database.DB, drafts(3, func(int) string { return "key" })...)
						createdAt := "1"
						if sameTime {
							createdAt = "created_at"
						}
						database.Exec(t, "INSERT INTO postbox_history (id, spool, topic, message_id, payload, metadata, created_at, done_at, attempts) "+
							"SELECT id, spool, 'before', 'x', payload, metadata, "+createdAt+", 2, 1 FROM postbox_messages WHERE message_id = ?", []byte("00001"))
						keep := func(c *drain.Config) { c.History = time.Hour }
						handler := &recorder{}
						if transactional {
							b.effects()
							e := &effector{}
							b.spawn("transactional", func(p *process) drain.Handler { e.p = p; return e }, keep)
							handler = &e.recorder
						} else {
							c := config("plain")
							keep(&c)
							b.start(database.DB, handler, c)
						}
						b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
						require.Equal(t, 1, handler.tried("00001"), "it is handled once")
						if sameTime {
							require.Equal(t, 3, b.history(), "it stands there once")
						} else {
							require.Equal(t, 4, b.history(), "both stand there")
						}
						require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"))
					})
				}
			})
		})
	}
}
