package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestGroups_puts_together_what_failed_in_the_same_way(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.letters(6)
		b.buryInbox("one", 0)
		b.buryInbox("two", 0)
		database.Exec(t, "UPDATE postbox_dead_letters SET error = 'broker 4711 is \"away\"', died_at = 5000000 WHERE message_id = ?", []byte("00002"))
		database.Exec(t, "UPDATE postbox_dead_letters SET died_at = 9000000 WHERE message_id = ?", []byte("00003"))
		all, capped, err := b.admin.Groups(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.False(t, capped)
		require.Len(t, all, 3)
		require.Equal(t, 8, all[0].Count+all[1].Count+all[2].Count)
		last := b.list(admin.Filter{MessageID: "00005"})[0].ID
		require.Equal(t, admin.Group{
			Target: b.target, Topic: "orders", Shape: "card # declined", Count: 5,
			First: time.UnixMicro(1), Last: time.UnixMicro(9_000_000), Example: last,
			Filter: admin.Filter{Target: b.target, Topic: "orders", Shape: "card # declined"},
		}, all[0])
		require.Equal(t, "billing", all[1].Consumer)
		require.Equal(t, admin.Target{}, all[1].Target)
		require.Equal(t, 2, all[1].Count)
		require.Equal(t, `broker # is "…"`, all[2].Shape)

		largest, _, err := b.admin.Groups(t.Context(), admin.Filter{Limit: 1})
		require.NoError(t, err)
		require.Equal(t, all[:1], largest)
		chosen, _, err := b.admin.Groups(t.Context(), admin.Filter{ErrorText: "away"})
		require.NoError(t, err)
		require.Len(t, chosen, 1)
		require.Equal(t, 1, chosen[0].Count)
		_, _, err = b.admin.Groups(t.Context(), admin.Filter{Limit: 1001, MinAttempts: -1})
		require.ErrorContains(t, err, "limit: 1001 is above 1000")
		require.ErrorContains(t, err, "attempts: from -1")
	})
}

// With more letters than it reads, it says so.
func TestGroups_G8_reads_a_bounded_number_of_letters(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.letters(10_001)
	groups, capped, err := b.admin.Groups(t.Context(), admin.Filter{})
	require.NoError(t, err)
	require.True(t, capped)
	require.Len(t, groups, 1)
	require.Equal(t, 10_000, groups[0].Count)
}
