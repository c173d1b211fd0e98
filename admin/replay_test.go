package admin_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// history writes messages of the history, which were written in the order of their ids and done in
// the opposite one.
func (b *bench) history(of *spool.Spool, n int, metadata map[string]string) {
	b.Helper()
	id, err := of.Open(b.Context(), b.database.DB)
	require.NoError(b, err)
	encoded, err := spool.EncodeMetadata(metadata)
	require.NoError(b, err)
	tx, err := b.database.DB.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	for i := 1; i <= n; i++ {
		_, err := tx.ExecContext(b.Context(), b.database.Bind(`INSERT INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata,
			created_at, done_at, attempts) VALUES (?, ?, 'orders', ?, ?, ?, ?, ?, ?, 1)`),
			i, id, fmt.Appendf(nil, "%05d", i), fmt.Appendf(nil, "key %d", i%7), []byte("payload"), encoded, i, 2_000_000-i)
		require.NoError(b, err)
	}
	require.NoError(b, tx.Commit())
}

// It goes on after the last cursor, which the audit log has, and the order of each key is kept.
func TestReplay_G10_goes_on_after_an_interruption(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const n = 250
		b.history(b.outbox, n, map[string]string{"about": "history"})
		ctx, stop := context.WithCancel(t.Context())
		var seen []int
		did, err := b.admin.Replay(ctx, admin.Filter{Target: b.target, All: true}, admin.Again{}, func(p admin.Progress) {
			if seen = append(seen, p.Done); p.Done >= 200 {
				stop()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []int{100, 200}, seen)
		require.Equal(t, 200, did.Done)
		require.Regexp(t, `^3-200-200-\d{16}$`, did.Cursor)
		entries, _, err := b.admin.Audit(t.Context(), admin.Filter{Action: "replay"})
		require.NoError(t, err)
		require.Equal(t, []any{200, "up to cursor " + did.Cursor}, []any{entries[0].Affected, entries[0].Note})

		did, err = b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true, After: did.Cursor}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 50, did.Done)
		b.inOrder(n)
		m := b.messages(admin.Filter{MessageID: "00007"})
		require.Len(t, m, 1)
		read, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: m[0].ID})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"about": "history", "postbox_replayed_from": "7"}, map[string]string(read.Metadata))
	})
}

// The copies of the first part are done, and so in the history, when the replay goes on.
func TestReplay_G4_goes_on_without_its_own_copies(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const n, first = 130, 100
		b.history(b.outbox, n, nil)
		did, err := b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true, Limit: first}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, first, did.Done)
		database.Exec(t, `INSERT INTO postbox_history (id, spool, topic, message_id, ordering_key, payload, metadata, created_at, done_at, attempts)
			SELECT id + 1000, spool, topic, message_id, ordering_key, payload, metadata, created_at, created_at + 1, 1 FROM postbox_messages`)
		database.Exec(t, "DELETE FROM postbox_messages")

		did, err = b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true, After: did.Cursor}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, n-first, did.Done)
		did, err = b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true, After: did.Cursor}, admin.Again{})
		require.NoError(t, err)
		require.Zero(t, did.Done)
		did, err = b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, n+first, did.Done, "a new replay has them, too")
		did, err = b.admin.Replay(t.Context(), admin.Filter{Target: b.target, Until: time.UnixMicro(2_000_000)}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, n, did.Done, "but not one of what was done before the first replay")
	})
}

func TestReplay_chooses_by_filter_and_limit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.history(b.outbox, 30, nil)
		for name, test := range map[string]struct {
			filter admin.Filter
			params admin.Again
			want   int
		}{
			"topic":   {admin.Filter{Topic: "other"}, admin.Again{}, 0},
			"key":     {admin.Filter{Key: "key 3"}, admin.Again{}, 4},
			"id":      {admin.Filter{MessageID: "00003"}, admin.Again{}, 1},
			"time":    {admin.Filter{From: time.UnixMicro(2_000_000 - 5), Until: time.UnixMicro(2_000_000 - 2)}, admin.Again{}, 3},
			"limit":   {admin.Filter{Limit: 7}, admin.Again{}, 7},
			"new ids": {admin.Filter{Key: "key 3"}, admin.Again{NewIDs: true}, 4},
		} {
			database.Exec(t, "DELETE FROM postbox_messages")
			test.filter.Target, test.filter.All = b.target, true
			did, err := b.admin.Replay(t.Context(), test.filter, test.params)
			require.NoError(t, err, name)
			require.Equal(t, test.want, did.Done, name)
			require.Equal(t, test.want, b.pending(), name)
			old := database.Count(t, "SELECT COUNT(*) FROM postbox_messages m JOIN postbox_history h ON h.message_id = m.message_id")
			if test.params.NewIDs {
				require.Zero(t, old)
			} else {
				require.Equal(t, test.want, old)
			}
		}
		database.Exec(t, "UPDATE postbox_history SET metadata = ? WHERE id = 3", []byte{0xff})
		did, err := b.admin.Replay(t.Context(), admin.Filter{Target: b.target, Key: "key 3"}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 3, did.Done)
		require.Equal(t, 1, did.Skipped)
	})
}

// A queue's messages go back to the queue, or through an outbox to the topic that they came from.
func TestReplay_from_a_queue(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.outboxID()
		from, target := spool.New(b.statements, spool.QueuePrefix+"mail"), admin.Queue("mail")
		b.history(from, 2, map[string]string{postbox.MetadataSourceTopic: "events"})
		topics := func(params admin.Again) (string, error) {
			database.Exec(t, "DELETE FROM postbox_messages")
			_, err := b.admin.Replay(t.Context(), admin.Filter{Target: target, Key: "key 1"}, params)
			to := params.To
			if to == (admin.Target{}) {
				to = target
			}
			found, _, listErr := b.admin.Messages(t.Context(), admin.Filter{Target: to})
			require.NoError(t, listErr)
			if err != nil {
				require.Empty(t, found)
				return "", err
			}
			require.Len(t, found, 1)
			m, readErr := b.admin.Message(t.Context(), admin.Filter{Target: to, ID: found[0].ID})
			require.NoError(t, readErr)
			return m.Topic + " " + m.Metadata[postbox.MetadataSourceTopic], err
		}
		for want, params := range map[string]admin.Again{
			"orders events": {},
			"events ":       {To: b.target},
			"other ":        {To: b.target, Topic: "other"},
		} {
			topic, err := topics(params)
			require.NoError(t, err)
			require.Equal(t, want, topic)
		}
		empty, err := spool.EncodeMetadata(nil)
		require.NoError(t, err)
		database.Exec(t, "UPDATE postbox_history SET metadata = ?", empty)
		_, err = topics(admin.Again{To: b.target})
		require.ErrorIs(t, err, admin.ErrRefused)
		require.ErrorContains(t, err, "does not say from which topic it came")
	})
}

// What is handled again is done again, and a replay that sees its own copies would not end.
func TestReplay_ends_although_a_drainer_handles_the_copies(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.history(b.outbox, 120, nil)
		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{History: time.Hour}))
		h, stop := b.drain(func(*spool.Message) error { return nil })
		did, err := b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true}, admin.Again{})
		require.NoError(t, err)
		require.Equal(t, 120, did.Done)
		b.eventually(func() bool { return len(h.counts()) == 120 && b.pending() == 0 }, "all are handled again")
		stop()
		for id, n := range h.counts() {
			require.Equal(t, 1, n, id)
		}
	})
}

func TestReplay_names_all_mistakes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	_, err := b.admin.Replay(t.Context(), admin.Filter{Target: admin.Queue("mail"), All: true, Limit: -1, After: "nonsense"},
		admin.Again{To: admin.Queue("other"), Topic: "x", OlderThanClaims: true})
	for _, part := range []string{
		`after: "nonsense" is not a cursor`, "older than claims, payload and metadata: they are for dead letters", "limit: -1 is negative", `to: queue "other" is another queue`, "topic: all messages",
	} {
		require.ErrorContains(t, err, part)
	}
	b.outboxID()
	_, err = b.admin.Replay(t.Context(), admin.Filter{Target: admin.Queue("mail"), All: true}, admin.Again{})
	require.ErrorIs(t, err, admin.ErrNotFound)
	_, err = b.admin.Replay(t.Context(), admin.Filter{Target: b.target, All: true}, admin.Again{To: admin.Outbox("none")})
	require.ErrorIs(t, err, admin.ErrNotFound)
}

func TestReplay_can_be_tried_before_it_begins(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.history(b.outbox, 3, nil)
	try := func(filter admin.Filter, again admin.Again) error {
		again.DryRun = true
		did, err := b.admin.Replay(t.Context(), filter, again)
		require.Zero(t, did)
		return err
	}
	require.NoError(t, try(admin.Filter{Target: b.target, All: true}, admin.Again{}))
	err := try(admin.Filter{Target: admin.Queue("mail"), From: time.UnixMicro(2), Until: time.UnixMicro(1)}, admin.Again{Topic: "x"})
	require.ErrorIs(t, err, admin.ErrInvalid)
	require.ErrorContains(t, err, "leave \"x\" out, or replay to an outbox")
	require.ErrorContains(t, err, "the second time is before the first")
	require.ErrorIs(t, try(admin.Filter{Target: admin.Queue("mail"), All: true}, admin.Again{}), admin.ErrNotFound)
	require.ErrorIs(t, try(admin.Filter{Target: b.target, All: true}, admin.Again{To: admin.Outbox("none")}), admin.ErrNotFound)
	require.Zero(t, b.pending())
	entries, _, err := b.admin.Audit(t.Context(), admin.Filter{Action: "replay"})
	require.NoError(t, err)
	require.Empty(t, entries)

	_, err = b.admin.Requeue(t.Context(), admin.Filter{All: true}, admin.Again{DryRun: true})
	require.ErrorIs(t, err, admin.ErrInvalid, "nothing is requeued by a trial")
}
