package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
)

func (b *bench) stuck(limit int) []admin.StuckKey {
	b.Helper()
	keys, err := b.admin.StuckKeys(b.Context(), admin.Filter{Target: b.target, Limit: limit})
	require.NoError(b, err)
	return keys
}

// fail makes messages retrying or parked, without a record of a failure.
func (b *bench) fail(where string, parked bool, args ...any) {
	b.Helper()
	due := int64(1)
	if parked {
		due = dialect.ParkedFrom
	}
	b.database.Exec(b.T, "UPDATE postbox_messages SET state = 2, attempts = 3, available_at = ? WHERE "+where, append([]any{due}, args...)...)
	b.database.MoveWaiting(b.T)
}

func TestStuckKeys_says_why_since_when_and_how_many_wait(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		_, err := b.admin.StuckKeys(t.Context(), admin.Filter{Target: b.target})
		require.ErrorIs(t, err, admin.ErrNotFound)
		b.outboxID()
		require.Empty(t, b.stuck(0), "an outbox without messages")
		const odd = "\x00\xff"
		b.append(draft("1", "orders", "bad"), draft("2", "invoices", "bad"), draft("3", "orders", "good"), draft("4", "orders", odd),
			draft("5", "orders", "paused"), draft("6", "orders", "paused"), draft("7", "orders", "bad"), draft("8", "orders", ""), draft("9", "orders", "paused and bad"))
		h, stop := b.drainStuck()
		b.eventually(func() bool { return len(h.counts()) == 3 && b.info().Parked == 4 }, "those that fail are parked")
		stop()
		b.append(draft("10", "orders", "paused"), draft("11", "orders", "paused"))
		for _, key := range []string{"paused", "paused and bad", "without messages"} {
			require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: key}))
		}
		keys := b.stuck(0)
		slices.SortFunc(keys, func(a, b admin.StuckKey) int { return strings.Compare(a.Key, b.Key) })
		require.Len(t, keys, 4, "a message without a key, and a paused key without messages, are none")
		var got []string
		for _, k := range keys {
			got = append(got, fmt.Sprintf("%q: %s %s %d of %s, %d behind %v, paused %v, %s",
				k.Key, k.Head.MessageID, k.Head.Status, k.Head.Attempts, k.Head.Topic, k.Behind, k.MoreBehind, !k.PausedSince.IsZero(), k.Error))
			require.WithinRange(t, k.Since, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
			one, err := b.admin.Message(t.Context(), admin.Filter{Target: b.target, ID: k.Head.ID})
			require.NoError(t, err)
			if k.Key == "paused" {
				require.Equal(t, k.PausedSince, k.Since)
				continue
			}
			require.Equal(t, one.Failures[0].At, k.Since, "the first failure")
		}
		require.Equal(t, []string{
			`"\x00\xff": 4 PARKED 2 of orders, 0 behind false, paused false, 4 says no`,
			`"bad": 1 PARKED 2 of orders, 2 behind false, paused false, 1 says no`,
			`"paused": 10 READY 0 of orders, 1 behind false, paused true, `,
			`"paused and bad": 9 PARKED 2 of orders, 0 behind false, paused true, 9 says no`,
		}, got)
		info := b.info()
		require.Equal(t, 3, info.StuckKeys)
		require.Positive(t, info.StuckAge)
		require.Less(t, info.StuckAge, time.Hour)
		require.InDelta(t, 3, b.measured(instruments.StuckKeys), 0)
		require.Positive(t, b.measured(instruments.StuckAge))
	})
}

// drainStuck parks the messages of bad keys, and one without a key.
func (b *bench) drainStuck() (h *handler, stop func()) {
	b.Helper()
	h = newHandler(func(m *spool.Message) error {
		if slices.Contains([]string{"1", "4", "8", "9"}, m.MessageID) {
			return fmt.Errorf("%s says no", m.MessageID)
		}
		return nil
	})
	return h, b.drainWith(b.database.DB, h, func(c *drain.Config) { c.Head = drain.HeadPark })
}

// measured returns the value of an instrument for the outbox.
func (b *bench) measured(of *metrics.Instrument) (found float64) {
	b.Helper()
	require.NoError(b, b.admin.Measure(b.Context(), instruments.RecorderFunc(func(i *metrics.Instrument, value float64, _ ...string) {
		if i == of {
			found = value
		}
	})))
	return found
}

func TestStuckKeys_limits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const keys = 1200
		drafts := make([]spool.Draft, 0, 2*keys)
		for i := range 2 * keys {
			drafts = append(drafts, draft(fmt.Sprintf("%04d", i), "orders", fmt.Sprint(i%keys)))
		}
		b.append(drafts...)
		first := b.database.Count(t, "SELECT MIN(id) FROM postbox_messages")
		b.fail("id < ?", false, first+keys)
		list := b.stuck(10)
		require.Len(t, list, 10)
		slices.SortFunc(list, func(a, b admin.StuckKey) int { return strings.Compare(a.Head.MessageID, b.Head.MessageID) })
		for i, k := range list {
			require.Equal(t, fmt.Sprintf("%04d", i), k.Head.MessageID, "the heads that were written first")
			require.Equal(t, admin.Retrying, k.Head.Status)
			require.Equal(t, 1, k.Behind)
			require.Equal(t, k.Head.CreatedAt, k.Since, "no failure is recorded")
		}
		require.Len(t, b.stuck(1000), 1000)
		require.Equal(t, 1000, b.info().StuckKeys, "more are not counted")
		_, err := b.admin.StuckKeys(t.Context(), admin.Filter{Target: b.target, Limit: 1001})
		require.ErrorContains(t, err, "limit: 1001 is above 1000")
		_, err = b.admin.StuckKeys(t.Context(), admin.Filter{Target: b.target, Limit: -1})
		require.ErrorContains(t, err, "negative")
	})
}

// So many messages wait behind one key that they are not all counted, and a paused key behind them
// is not found.
func TestStuckKeys_counts_a_bounded_number_of_messages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const messages = 20_100
		drafts := make([]spool.Draft, messages)
		for i := range drafts {
			drafts[i] = spool.Draft{Topic: "orders", MessageID: "m", Key: "bad"}
		}
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, b.outbox.Append(t.Context(), tx, spool.Run, drafts))
		require.NoError(t, tx.Commit())
		b.fail("id = (SELECT f.id FROM (SELECT MIN(id) AS id FROM postbox_messages) f)", true)
		other := keyInLane(keyhash.Lane(keyhash.Of("bad"), lanes))
		b.append(draft("late", "orders", other))
		require.NoError(t, b.admin.Pause(t.Context(), admin.Filter{Target: b.target, Key: other}))
		started := time.Now()
		list := b.stuck(0)
		t.Logf("%s", time.Since(started))
		require.Len(t, list, 1)
		require.Equal(t, admin.Parked, list[0].Head.Status)
		require.Equal(t, 20_000, list[0].Behind)
		require.True(t, list[0].MoreBehind)
	})
}

func keyInLane(lane int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("key ", i); keyhash.Lane(keyhash.Of(key), lanes) == lane {
			return key
		}
	}
}

// A page of stuck keys is a handful of statements, however many keys are stuck, and each of them
// reads a bounded number of messages.
func TestStuckKeys_G8_a_page_is_a_handful_of_statements(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.append(numbered(500)...)
		b.database.Exec(t, "UPDATE postbox_messages SET key_hash = id, ordering_key = message_id")
		const columns = "spool, state, lane, available_at, created_at, attempts, topic, message_id, payload, metadata"
		for range 6 {
			b.database.Exec(t, `INSERT INTO postbox_messages (key_hash, ordering_key, `+columns+`)
				SELECT (SELECT MAX(id) FROM postbox_messages) + id, message_id, `+columns+` FROM postbox_messages`)
		}
		b.fail("id > 0", false)
		db, record := b.database.OpenRecorded(t)
		watching, err := admin.New(b.database.On(db), admin.Config{}, nil)
		require.NoError(t, err)
		for range 2 {
			record.Take()
			began := time.Now()
			keys, err := watching.StuckKeys(t.Context(), admin.Filter{Target: b.target, Limit: 100})
			require.NoError(t, err)
			asked := record.Take()
			t.Logf("%d statements, %s", len(asked), time.Since(began))
			require.Len(t, keys, 100)
			require.LessOrEqual(t, len(asked), 6)
		}
	})
}
