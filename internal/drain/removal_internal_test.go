package drain

import (
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
		from     int64
	}{
		"done":                         {outcome: spool.Outcome{Verdict: spool.Done}, from: 6},
		"settled by its handler":       {outcome: spool.Outcome{Verdict: spool.Settled}, from: 6},
		"without an outcome":           {outcome: spool.Outcome{Verdict: spool.Postpone}, from: 6},
		"failed again":                 {outcome: spool.Outcome{Verdict: spool.Retry}, from: read},
		"waits without an attempt":     {outcome: spool.Outcome{Verdict: spool.Wait}, attempts: 2, from: read},
		"failed for the last time":     {outcome: spool.Outcome{Verdict: spool.Retry}, attempts: 2, from: 6},
		"failed once more, and blocks": {outcome: spool.Outcome{Verdict: spool.Retry}, attempts: 2, head: HeadBlock, from: read},
		"dead":                         {outcome: spool.Outcome{Verdict: spool.Dead}, from: 6},
		"dead, and is parked":          {outcome: spool.Outcome{Verdict: spool.Dead}, head: HeadPark, from: read},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newIdleDrainer(&core{lanes: held(0), scheduler: schedule.New(1, nil), spool: &spool.Spool{}, logger: watermill.NopLogger{}})
			d.config.Retry, d.config.Head = postbox.RetryProfile{Attempts: 3}, c.head
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

// A row that a trigger of the user keeps is told from one that is gone, and from one whose lane is
// another's: only the first is removed later without being handled again. Nor is it where the
// server is one that the process has not read from. Also covers G6.
func TestRemoval_G4_distinguishes_kept_rows_from_lost_ones(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		ids := func(messages []*spool.Message) map[int64]bool {
			set := map[int64]bool{}
			for _, m := range messages {
				set[m.Ref.ID] = true
			}
			return set
		}
		kept, gone, lost := c.suspects[:2], c.suspects[2:3], c.suspects[3:4]
		switch database.Dialect {
		case postbox.PostgreSQL:
			database.Exec(t, "CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
			database.Exec(t, "CREATE TRIGGER ignored BEFORE DELETE ON postbox_messages FOR EACH ROW WHEN (OLD.message_id IN ('0', '1')) EXECUTE FUNCTION ignored()")
		case postbox.SQLite:
			database.Exec(t, "CREATE TRIGGER ignored BEFORE DELETE ON postbox_messages WHEN CAST(OLD.message_id AS TEXT) IN ('0', '1') BEGIN SELECT RAISE(IGNORE); END")
		case postbox.MySQL: // has no such triggers
			kept = nil
		}
		refs := make([]dialect.Ref, counted)
		for i, m := range c.suspects {
			refs[i] = m.Ref
		}
		unseen := &dialect.Seen{Given: math.MaxInt64}
		left, err := c.d.settle.remove(t.Context(), refs, manner{seen: unseen})
		require.NoError(t, err)
		require.True(t, left.missing)
		require.Empty(t, left.kept, "they may have to be handled again")
		require.Equal(t, counted, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))

		database.Exec(t, "DELETE FROM postbox_messages WHERE id = ?", gone[0].Ref.ID)
		refs[3].Token++
		left, err = c.d.settle.remove(t.Context(), refs, manner{})
		require.NoError(t, err)
		require.True(t, left.missing)
		require.Equal(t, ids(kept), left.kept)
		remaining := len(kept) + len(lost)
		require.Equal(t, remaining, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "all others are removed")

		if len(kept) > 0 {
			left, err = c.d.settle.remove(t.Context(), refs[:2], manner{})
			require.NoError(t, err)
			require.False(t, left.missing)
			require.Equal(t, ids(kept), left.kept)
		}
	})
}
