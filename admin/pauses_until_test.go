package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestPause_keeps_who_why_and_until_when(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		ctx := admin.ContextWithActor(t.Context(), "alice")
		until := time.Now().Add(2 * time.Hour).Truncate(time.Microsecond)
		whole, topic, key := admin.Filter{Target: b.target, All: true}, admin.Filter{Target: b.target, Topic: "orders"}, admin.Filter{Target: b.target, Key: "key"}
		whole.Until, topic.Until = until, until
		for _, filter := range []admin.Filter{whole, topic, key} {
			require.NoError(t, b.admin.Pause(ctx, filter, "migration of the broker"))
		}
		paused, err := b.admin.Paused(t.Context(), b.target)
		require.NoError(t, err)
		require.Len(t, paused, 2)
		for _, p := range append(paused, b.info().Pause) {
			require.Equal(t, "alice", p.By)
			require.Equal(t, "migration of the broker", p.Reason)
			require.False(t, p.Since.IsZero())
			if p.Key == "" {
				require.True(t, until.Equal(p.Until), p)
			} else {
				require.Zero(t, p.Until)
			}
		}
		entries, _, err := b.admin.Audit(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.Len(t, entries, 3)
		require.Equal(t, "migration of the broker", entries[0].Note)
		require.Equal(t, "migration of the broker; until "+until.UTC().Format(time.RFC3339), entries[1].Note)
		require.Equal(t, entries[1].Note, entries[2].Note)

		version := b.version()
		for _, filter := range []admin.Filter{whole, topic, key} {
			require.NoError(t, b.admin.Pause(ctx, filter, "migration of the broker"))
		}
		require.Equal(t, version, b.version(), "nothing is new")
		whole.Until, topic.Until = time.Time{}, until.Add(time.Hour)
		require.NoError(t, b.admin.Pause(ctx, whole, "for good"))
		require.NoError(t, b.admin.Pause(ctx, topic, "migration of the broker"))
		require.Equal(t, version+2, b.version())
		require.Zero(t, b.info().Pause.Until)
		paused, err = b.admin.Paused(t.Context(), b.target)
		require.NoError(t, err)
		require.True(t, topic.Until.Equal(paused[1].Until))
	})
}

func TestPause_refuses_an_end_that_has_passed_and_that_of_a_key(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		for _, filter := range []admin.Filter{{All: true, Until: time.Now().Add(-time.Minute)}, {Topic: "orders", Until: time.Now().Add(-time.Minute)}} {
			filter.Target = b.target
			err := b.admin.Pause(t.Context(), filter)
			require.ErrorIs(t, err, admin.ErrInvalid)
			require.ErrorContains(t, err, "has passed: it is")
		}
		err := b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: "key", Until: time.Now().Add(time.Hour)})
		require.ErrorIs(t, err, admin.ErrInvalid)
		require.ErrorIs(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, All: true, Until: time.Now().Add(time.Hour)}), admin.ErrInvalid)
		require.Zero(t, b.version(), "nothing is paused")
	})
}

// A pause with an end is not resumed by an operator. It ends by the database's clock, whether a
// process runs or not.
func TestPause_ends_by_itself(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		later := time.Now().Add(time.Hour)
		pauses := map[string]admin.Filter{
			"UPDATE postbox_topic_pauses SET ends_at = 1": {Target: b.target, Topic: "orders", Until: later},
			"UPDATE postbox_spools SET pause_ends_at = 1": {Target: b.target, All: true, Until: later},
		}
		for end, filter := range pauses {
			for _, runs := range []bool{true, false} {
				h := newHandler(func(*spool.Message) error { return nil })
				stop := func() {}
				start := func() { stop = b.drainWith(database.Open(t), h, func(*drain.Config) {}) }
				require.NoError(t, b.admin.Pause(t.Context(), filter))
				b.append(draft("held", "orders", "a"), draft("behind it", "orders", "a"))
				if runs {
					b.append(draft("other", "invoices", ""))
					start()
					if filter.All {
						require.Never(t, func() bool { return len(h.counts()) > 0 }, 300*time.Millisecond, 50*time.Millisecond)
					} else {
						b.eventually(func() bool { return h.counts()["other"] == 1 }, "others go on")
						require.Len(t, h.counts(), 1)
					}
				}
				version := b.version()
				database.Exec(t, end)
				paused, err := b.admin.Paused(t.Context(), b.target)
				require.NoError(t, err)
				require.Empty(t, paused)
				require.Zero(t, b.info().Pause)
				require.Zero(t, b.info().PausedTopics)
				if !runs {
					start()
				}
				b.eventually(func() bool { return b.pending() == 0 }, end)
				for id, times := range h.counts() {
					require.Equal(t, 1, times, id)
				}
				stop()
				require.Equal(t, version, b.version())
				require.NoError(t, b.admin.Pause(t.Context(), filter), "it can be paused again")
				require.Equal(t, version+1, b.version())
				require.NoError(t, b.admin.Resume(t.Context(), admin.Filter{Target: b.target, Topic: filter.Topic, All: filter.All}))
			}
		}
	})
}
