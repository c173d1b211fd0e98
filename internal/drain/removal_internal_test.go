package drain

import (
	"cmp"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// What stands behind a message is read again when it has given its key free, and not while it goes
// on waiting: a key that is stuck for long has much behind it.
func TestForget_reads_messages_behind_a_finished_retry_again(t *testing.T) {
	t.Parallel()
	const read = 100 // up to there
	for name, c := range map[string]struct {
		outcome  spool.Outcome
		attempts int
		head     HeadPolicy
		most     int
		from     int64
	}{
		"done":                         {outcome: spool.Outcome{Verdict: spool.Done}, from: 6},
		"settled by its handler":       {outcome: spool.Outcome{Verdict: spool.Settled}, from: 6},
		"without an outcome":           {outcome: spool.Outcome{Verdict: spool.Postpone}, from: 6},
		"failed again":                 {outcome: spool.Outcome{Verdict: spool.Retry}, from: read},
		"waits without an attempt":     {outcome: spool.Outcome{Verdict: spool.Wait}, attempts: 2, from: read},
		"failed for the last time":     {outcome: spool.Outcome{Verdict: spool.Retry}, attempts: 2, from: 6},
		"failed once more, and blocks": {outcome: spool.Outcome{Verdict: spool.Retry}, attempts: 2, most: -1, from: read},
		"dead":                         {outcome: spool.Outcome{Verdict: spool.Dead}, from: 6},
		"dead, and is parked":          {outcome: spool.Outcome{Verdict: spool.Dead}, head: HeadPark, from: read},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newIdleDrainer(&core{lanes: held(0), scheduler: schedule.New(1, nil), spool: &spool.Spool{}, logger: watermill.NopLogger{}})
			d.config.Retry, d.config.Head = postbox.RetryProfile{Attempts: cmp.Or(c.most, 3)}, c.head
			d.lanes.held[1].cursor = read
			retried := ofLane(7, 3)
			retried.Ref.State, retried.Attempts = dialect.StateRetrying, c.attempts
			entry := schedule.NewEntry(retried)
			entry.Outcome = c.outcome
			if entries := []*schedule.Entry{entry}; wayOf(entry) == fail {
				d.settle.noteFates(settledPart{part: entries, fates: []dialect.Failed{d.settle.fate(entry)}})
			}
			d.settle.forget([]*schedule.Entry{entry})
			require.Equal(t, c.from, d.lanes.held[1].cursor)
		})
	}
}

// A row whose lane is another's is not removed. Nor is one where the server is one that the process
// has not read from. Also covers G6.
func TestRemoval_G4_leaves_what_may_be_another_ones(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		gone := c.suspects[2]
		refs := make([]dialect.Ref, counted)
		for i, m := range c.suspects {
			refs[i] = m.Ref
		}
		unseen := &dialect.Seen{Given: math.MaxInt64}
		left, err := c.d.settle.remove(t.Context(), refs, manner{seen: unseen})
		require.NoError(t, err)
		require.True(t, left.missing)
		require.Equal(t, counted, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))

		database.Exec(t, "DELETE FROM postbox_messages WHERE id = ?", gone.Ref.ID)
		refs[3].Token++
		left, err = c.d.settle.remove(t.Context(), refs, manner{})
		require.NoError(t, err)
		require.True(t, left.missing)
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "all others are removed")
	})
}

// A message whose failures have no limit still has one for crashes, whatever becomes of its key.
func TestCrashGuard_F5_attempts_without_a_limit_end_with_crashes(t *testing.T) {
	t.Parallel()
	for _, head := range []HeadPolicy{HeadSkip, HeadPark} {
		c := &core{config: Config{Rules: Rules{Head: head}, Retry: postbox.RetryProfile{Attempts: -1}}}
		for starts, over := range map[int]bool{1: false, mostCrashes - 1: false, mostCrashes: true} {
			m := &spool.Message{Attempts: 50, Starts: starts}
			require.Equal(t, over, c.crashedTooOften(m), "%d starts", starts)
		}
	}
}
