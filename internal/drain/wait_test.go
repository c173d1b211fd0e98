package drain_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// waiting is a handler that lets one message wait as often as it is told, and counts how often it
// saw each message.
type waiting struct {
	mu      sync.Mutex
	id      string
	waits   int
	seen    map[string]int
	handled []string
}

func (w *waiting) Handle(_ context.Context, batch []*spool.Message) []spool.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	outcomes := make([]spool.Outcome, len(batch))
	closed := map[string]bool{}
	for i, m := range batch {
		if closed[m.Key] {
			outcomes[i].Verdict = spool.Postpone
			continue
		}
		w.seen[m.MessageID]++
		if m.MessageID == w.id && w.seen[m.MessageID] <= w.waits {
			outcomes[i] = spool.Outcome{Verdict: spool.Wait, Err: errTest, After: time.Millisecond}
			closed[m.Key] = true
			continue
		}
		w.handled = append(w.handled, m.MessageID)
	}
	return outcomes
}

func (w *waiting) Excluded() []string { return nil }

func (w *waiting) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.handled)
}

func (w *waiting) times(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[id]
}

func TestDrainer_G7_message_waits_with_its_key_and_no_attempt_is_counted(t *testing.T) {
	t.Parallel()
	for _, head := range []drain.HeadPolicy{drain.HeadSkip, drain.HeadPark} {
		t.Run(fmt.Sprint("head policy ", head), func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				c := config("one")
				c.Head = head
				handler := &waiting{id: "00000", waits: 10 * c.Retry.Attempts, seen: map[string]int{}}
				b.Append(database.DB, drafts(10, func(i int) string { return []string{"key", "other"}[i%2] })...)
				b.start(database.DB, handler, c)
				b.Eventually(func() bool { return b.Pending() == 0 }, "it goes through, and its key behind it")
				require.Zero(t, b.Dead())
				require.Equal(t, handler.waits+1, handler.times("00000"))
				for id := 1; id < 10; id++ {
					require.Equal(t, 1, handler.times(fmt.Sprintf("%05d", id)), "another message runs once")
				}
				var ofKey []string
				for _, id := range handler.ids() {
					if id[len(id)-1]%2 == '0'%2 {
						ofKey = append(ofKey, id)
					}
				}
				require.Equal(t, []string{"00000", "00002", "00004", "00006", "00008"}, ofKey)
				require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"), "the reason is noted once")
				require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_failures WHERE attempt = 0 AND error LIKE 'the message waits%"+errTest.Error()+"'"))
			})
		})
	}
}

func TestDrainer_message_that_waits_after_failures_keeps_its_attempts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("one", "key"))
		handler := newStanding()
		c := config("one")
		b.start(database.DB, handler, c)
		for _, verdict := range []spool.Verdict{spool.Retry, spool.Wait, spool.Retry, spool.Wait, spool.Wait, spool.Retry} {
			signal(t, handler.entered, "the message is handled")
			require.Zero(t, b.Dead())
			handler.proceed <- spool.Outcome{Verdict: verdict, Err: errTest}
		}
		b.Eventually(func() bool { return b.Dead() == 1 }, "three failures are all its attempts")
		require.Equal(t, 3, database.Count(t, "SELECT attempts FROM postbox_dead_letters"))
		require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM postbox_failures"), "a wait that follows a failure is not noted")
	})
}

// The start that the crash guard counted is taken back when the message waits, the first time and
// later.
func TestDrainer_start_of_a_message_that_waits_is_taken_back(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("one", "key"))
		first := newStanding()
		p := b.spawn("first", first.of, single)
		signal(t, first.entered, "it is handled")
		p.kill()

		second := newStanding()
		b.spawn("second", second.of, single)
		signal(t, second.entered, "it is handled again")
		require.Equal(t, 1, b.starts())
		second.proceed <- spool.Outcome{Verdict: spool.Wait, Err: errTest, After: time.Millisecond}
		signal(t, second.entered, "and again after a pause")
		b.Eventually(func() bool { return b.starts() == 0 || b.markedLanes() > 0 }, "the count is taken back")
		second.proceed <- spool.Outcome{Verdict: spool.Wait, Err: errTest, After: time.Hour}
		b.Eventually(func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 0 AND starts = 0 AND available_at > ?",
				time.Now().Add(30*time.Minute).UnixMicro()) == 1
		}, "it waits, and nothing is counted")
		b.Eventually(func() bool { return b.markedLanes() == 0 }, "nothing is suspected any more")
	})
}
