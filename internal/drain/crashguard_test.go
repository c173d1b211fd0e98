package drain_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// plague handles messages until it meets the culprit, which kills its process, and whatever runs
// beside it stands still. The innocent take a moment, so that some of them do run beside it.
func plague(culprit string, met *int) func(p *process) drain.Handler {
	return func(p *process) drain.Handler {
		return &effector{p: p, do: func(_ context.Context, m *spool.Message) error {
			if m.MessageID == culprit {
				*met++ // one process after the other
				p.dies()
				return nil
			}
			select {
			case <-p.dead:
			case <-time.After(time.Millisecond):
			}
			return nil
		}}
	}
}

// Whoever handles the culprit is dead, and nothing says so. Wherever it stands among the others,
// those that ran beside it, stand behind it, or have failed almost too often already, are handled
// once and do not die with it. Also covers F5.
func TestDrainer_G2_a_message_that_crashes_its_process_dies_alone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, culprit := range []int{0, 7, 29} {
			t.Run(fmt.Sprint(culprit), func(t *testing.T) {
				b := newBench(t, database)
				b.effects()
				defer database.Exec(t, "DROP TABLE effects")
				const messages = 30
				list := drafts(messages, func(i int) string { return []string{"", "a", "b", "c", "d"}[i%5] })
				b.Append(database.DB, list...)
				database.Exec(t, "UPDATE postbox_messages SET attempts = 2 WHERE message_id <> ?", []byte(list[culprit].MessageID))

				met, processes := 0, 0
				for ; b.Dead() == 0; processes++ {
					require.Less(t, processes, 10, "it goes on for ever")
					p := b.spawn(fmt.Sprintf("%s %d", t.Name(), processes), plague(list[culprit].MessageID, &met), nil)
					b.Eventually(func() bool {
						select {
						case <-p.dead:
							return true
						default:
							return b.Dead() > 0
						}
					}, "it dies, or the culprit does")
					if b.Dead() > 0 {
						break
					}
					p.kill()
				}
				require.Equal(t, 1+config("").Retry.Attempts, met, "one start nobody suspects, and each further one counts")
				b.Eventually(func() bool { return b.Pending() == 0 }, "the others go on")
				b.effectsOnce(messages - 1)
				require.Zero(t, b.effect(list[culprit].MessageID))
				require.Equal(t, 1, b.Dead())
				require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters WHERE message_id = ?", []byte(list[culprit].MessageID)))
				b.Eventually(func() bool { return b.markedLanes() == 0 }, "nothing is suspected any more")
				database.Exec(t, "DELETE FROM postbox_dead_letters")
			})
		}
	})
}

// markedLanes counts lanes that bear the mark.
func (b *bench) markedLanes() int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COUNT(*) FROM postbox_lanes WHERE suspect <> 0")
}

// starts adds up the starts that are counted.
func (b *bench) starts() int {
	b.T.Helper()
	return b.Database.Count(b.T, "SELECT COALESCE(SUM(starts), 0) FROM postbox_messages")
}

// standing is a handler that stands still until it is told how to go on.
type standing struct {
	entered chan struct{}
	proceed chan spool.Outcome
}

func newStanding() *standing {
	return &standing{entered: make(chan struct{}, 1000), proceed: make(chan spool.Outcome, 1000)}
}

func (s *standing) Handle(ctx context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	for i := range batch {
		s.entered <- struct{}{}
		select {
		case outcomes[i] = <-s.proceed:
		case <-ctx.Done():
			outcomes[i] = spool.Outcome{Verdict: spool.Postpone, Err: ctx.Err()}
		}
	}
	return outcomes
}

func (s *standing) Excluded() []string { return nil }

func (s *standing) of(*process) drain.Handler { return s }

func single(c *drain.Config) { c.BatchSize, c.Workers = 1, 100 }

func TestDrainer_G12_clean_restart_counts_no_starts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(20, func(i int) string { return fmt.Sprint(i) })...)
		before := newStanding()
		p := b.spawn("before", before.of, func(c *drain.Config) {
			single(c)
			c.Close = time.Nanosecond // handlers have no time, and the lanes are handed back all the same
		})
		for range 20 {
			signal(t, before.entered, "all are handled")
		}
		require.Zero(t, b.starts(), "nobody has crashed")
		for range 5 {
			before.proceed <- spool.Outcome{Verdict: spool.Done}
		}
		b.Eventually(func() bool { return b.Pending() == 15 }, "some are done")
		p.stop(t)
		require.Zero(t, b.markedLanes())

		after := newStanding()
		b.spawn("after", after.of, single)
		for range 15 {
			signal(t, after.entered, "all others are handled")
		}
		require.Zero(t, b.starts())
		require.Zero(t, b.markedLanes())
	})
}

// What the process that crashed can have begun is counted before it is handed out again, and
// whatever its outcome, the count is taken back.
func TestDrainer_F5_after_a_crash_starts_are_counted_and_taken_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(4, func(i int) string { return fmt.Sprint(i) })...)
		first := newStanding()
		p := b.spawn("first", first.of, single)
		for range 4 {
			signal(t, first.entered, "all are handled")
		}
		p.kill()

		second := newStanding()
		b.spawn("second", second.of, func(c *drain.Config) {
			single(c)
			c.PollMin, c.PollMax, c.PageSize = time.Hour, time.Hour, 4*lanes
		})
		for range 4 {
			signal(t, second.entered, "all are handled again")
		}
		require.Equal(t, 4, b.starts(), "each is counted before it is handed out")
		require.Equal(t, lanes, b.markedLanes())
		for _, outcome := range []spool.Outcome{
			{Verdict: spool.Done},
			{Verdict: spool.Dead, Err: errTest},
			{Verdict: spool.Retry, Err: errTest, After: time.Hour},
			{Verdict: spool.Postpone},
		} {
			second.proceed <- outcome
		}
		signal(t, second.entered, "the postponed one comes again")
		b.Eventually(func() bool {
			return b.Pending() == 2 && b.Dead() == 1 &&
				database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts = 1 AND state = 2") == 1
		}, "the outcomes are written")
		require.Zero(t, b.starts(), "what came back is no suspect, also when it is handed out again")
		second.proceed <- spool.Outcome{Verdict: spool.Done}
		b.Eventually(func() bool { return b.Pending() == 1 && b.markedLanes() == 0 }, "the marks are taken away")
	})
}

// A process that stops cleanly before it has handled all suspects leaves the mark to the next one.
// Also covers F5.
func TestDrainer_G12_the_mark_stays_until_all_suspects_are_handled(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(2, func(int) string { return "key" })...)
		first := newStanding()
		p := b.spawn("first", first.of, single)
		signal(t, first.entered, "the first is handled")
		p.kill()

		second := newStanding()
		p = b.spawn("second", second.of, single)
		signal(t, second.entered, "the first is handled again")
		p.cancel() // it has the second message in memory
		second.proceed <- spool.Outcome{Verdict: spool.Done}
		p.stop(t)
		require.Equal(t, 1, b.Pending())
		require.Zero(t, b.starts())
		require.NotZero(t, b.markedLanes(), "the second may be the culprit")

		third := newStanding()
		b.spawn("third", third.of, single)
		signal(t, third.entered, "the second is handled")
		require.Equal(t, 1, b.starts())
		third.proceed <- spool.Outcome{Verdict: spool.Done}
		b.Eventually(func() bool { return b.Pending() == 0 && b.markedLanes() == 0 }, "all are through")
	})
}

// A message whose head is tried for ever has more failures than attempts. That its process crashes
// proves nothing. Also covers feature N8.
func TestDrainer_F5_a_blocked_head_survives_one_crash_but_no_crash_loop(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, drafts(2, func(int) string { return "key" })...)
		database.Exec(t, "UPDATE postbox_messages SET attempts = 50 WHERE message_id = ?", []byte("00000"))
		block := func(c *drain.Config) {
			single(c)
			c.Retry.Attempts = -1
		}
		const mostCrashes = 15
		crashes := 0
		for ; b.Dead() == 0; crashes++ {
			require.LessOrEqual(t, crashes, mostCrashes+1, "it goes on for ever")
			handler := newStanding()
			p := b.spawn(fmt.Sprint(crashes), handler.of, block)
			signal(t, handler.entered, "something is handled")
			b.Eventually(func() bool { return b.Dead() > 0 || b.starts() == crashes }, "the start is counted")
			p.kill()
		}
		require.Equal(t, mostCrashes+2, crashes, "the last one handled the other message")
	})
}

// Whoever is told of the death gets the message whole, also where its payload is too large to be
// read with others.
func TestDrainer_F5_the_hook_gets_a_large_message_that_crashed_its_process_whole(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	b := newBench(t, database)
	large := draft("large", "")
	large.Payload, large.Metadata = make([]byte, 100<<10), map[string]string{"a": "b"}
	b.Append(database.DB, large)
	told := make(chan string, 10)
	crashes := 0
	for ; b.Dead() == 0; crashes++ {
		require.Less(t, crashes, 10, "it goes on for ever")
		handler := newStanding()
		p := b.spawn(fmt.Sprint(crashes), handler.of, func(c *drain.Config) {
			single(c)
			c.Buried = func(_ context.Context, m *spool.Message, attempts int, cause error) error {
				told <- fmt.Sprintf("%d bytes, %s, %d: %s", len(m.Payload), m.Metadata["a"], attempts, cause)
				return nil
			}
		})
		b.Eventually(func() bool { return len(handler.entered) > 0 || b.Dead() > 0 }, "it is handled")
		p.kill()
	}
	require.Equal(t, config("").Retry.Attempts+2, crashes)
	require.Equal(t, "102400 bytes, b, 1: each process that handled the message ended without an outcome, 3 times", <-told)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"), "and it is on record")
}

// The previous holder crashed with many messages in memory, all of them retries that are due. The
// first read returns some of them alone.
func TestCrashGuard_F5_all_due_retries_are_exposed_after_a_crash(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.open()
		const messages = 400
		b.Append(database.DB, drafts(messages, func(i int) string { return fmt.Sprint(i) })...)
		database.Exec(t, "UPDATE postbox_messages SET state = 2, attempts = 1, available_at = 1")
		database.MoveWaiting(t)
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'crashed', token = token + 1")
		var exposed atomic.Int64
		c := config("heir")
		c.PageSize = 500
		b.start(database.DB, &recorder{do: func(m *spool.Message) error {
			if m.Exposed || m.Suspect() {
				exposed.Add(1)
			}
			return nil
		}}, c)
		b.Eventually(func() bool { return b.Pending() == 0 }, "all are done")
		require.EqualValues(t, messages, exposed.Load())
	})
}

// The head of a key waits for another attempt, so reads leave out the message behind it. That
// message may have crashed the former process before the head failed. So its start is counted.
func TestCrashGuard_F5_what_stands_behind_a_retry_stays_exposed_after_a_crash(t *testing.T) {
	t.Parallel()
	for name, state := range map[string]int{"ready": 0, "scheduled": 1, "retrying": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				b.open()
				b.Append(database.DB, drafts(2, func(int) string { return "key" })...)
				const later, set = 1 << 60, "UPDATE postbox_messages SET state = ?, attempts = 1, available_at = ? WHERE message_id = ?"
				database.Exec(t, set, 2, later, []byte("00000"))
				database.Exec(t, set, state, 1, []byte("00001"))
				database.MoveWaiting(t)
				database.Exec(t, "UPDATE postbox_lanes SET holder = 'crashed', token = token + 1")

				handler := newStanding()
				b.start(database.DB, handler, config("heir"))
				t.Cleanup(func() { close(handler.proceed) })
				for _, id := range []string{"a", "b"} { // until it has read all lanes twice
					b.Append(database.DB, draft(id, id))
					signal(t, handler.entered, "another message is handled")
					handler.proceed <- spool.Outcome{Verdict: spool.Done}
				}
				b.Eventually(func() bool { return b.Pending() == 2 && b.markedLanes() <= 1 }, "what is through is no suspect")
				require.Equal(t, 1, b.markedLanes(), "the second message may be the culprit")

				database.Exec(t, "UPDATE postbox_messages SET available_at = 1 WHERE available_at = ?", later)
				signal(t, handler.entered, "the head is handled")
				handler.proceed <- spool.Outcome{Verdict: spool.Done}
				signal(t, handler.entered, "the second message is handled")
				require.Equal(t, 1, b.starts())
				handler.proceed <- spool.Outcome{Verdict: spool.Done}
				b.Eventually(func() bool { return b.Pending() == 0 && b.markedLanes() == 0 }, "all are through")
			})
		})
	}
}

// What is stored after the next process has read all that there was is no suspect, although an
// exposed message is handled for long. Also covers G12.
func TestCrashGuard_F5_later_messages_are_no_suspects(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.open()
		b.Append(database.DB, draft("long", "long"))
		database.Exec(t, "UPDATE postbox_lanes SET holder = 'crashed', token = token + 1")
		handler := newStanding()
		c := config("heir")
		single(&c)
		b.start(database.DB, handler, c)
		t.Cleanup(func() { close(handler.proceed) })
		signal(t, handler.entered, "a long call")
		b.Eventually(func() bool { return b.markedLanes() == 1 }, "the other lanes have been read")
		b.Append(database.DB, draft("read again", "read again"))
		signal(t, handler.entered, "all lanes have been read again")
		const others = 65
		b.Append(database.DB, drafts(others, func(i int) string { return fmt.Sprint("other ", i) })...)
		for range others {
			signal(t, handler.entered, "another message is handled")
		}
		require.Equal(t, 1, b.starts(), "only that of the long call")
	})
}

// The message that crashed its process is not read by the next one while its key or topic is
// paused. When it is read, its start is counted.
func TestCrashGuard_F5_what_is_paused_stays_exposed_after_a_crash(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]struct{ begin, end func(b *bench) }{
		"key":   {func(b *bench) { b.pauseKey("key") }, func(b *bench) { b.resumeKey("key") }},
		"topic": {func(b *bench) { b.pauseTopic("closed") }, func(b *bench) { b.resumeTopic("closed") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				deadly := draft("deadly", "key")
				deadly.Topic = "closed"
				b.Append(database.DB, deadly)
				met := 0
				p := b.spawn("one", plague("deadly", &met), nil)
				signal(t, p.dead, "it dies")
				p.kill()
				require.Zero(t, b.starts(), "no start of it is counted")

				pause.begin(b)
				handler := newStanding()
				second := b.start(database.DB, handler, config("two"))
				t.Cleanup(func() { close(handler.proceed) })
				signal(t, second.Ready(), "the second process has read")
				for _, id := range []string{"a", "b"} { // and has read again
					b.Append(database.DB, draft(id, id))
					signal(t, handler.entered, "another message is handled")
					handler.proceed <- spool.Outcome{Verdict: spool.Done}
				}
				b.Eventually(func() bool { return b.Pending() == 1 }, "it is paused")
				pause.end(b)
				signal(t, handler.entered, "it is handled")
				require.Equal(t, 1, b.starts())
			})
		})
	}
}
