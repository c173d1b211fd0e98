package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Another process joins while the database refuses to remove a message that is done. Half of the
// lanes go to that process, but not the lane of the message: it would be handled again.
func TestDrainer_G2_hands_back_a_lane_with_a_refused_outcome_later(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		end := b.refuse(forbids)
		b.Append(database.DB, draft("bad", keyOf(lanes-1))) // in the lane that would go first
		handler := &recorder{}
		log := b.startLogged(database.DB, handler, config("one"))
		b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 }, "it rests")
		b.start(database.DB, handler, config("two"))
		b.Eventually(func() bool { return b.held("one") == lanes/2 && b.held("two") == lanes/2 }, "half of the lanes go")
		b.Append(database.DB, drafts(200, func(i int) string { return keyOf(i % (lanes - 1)) })...)
		b.Eventually(func() bool { return b.Pending() == 1 }, "all others go on")
		require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_lanes WHERE holder = 'one' AND lane = ?", lanes-1))
		end()
		b.Eventually(func() bool { return b.Pending() == 0 }, "it is removed")
		require.Equal(t, 1, handler.tried("bad"))
	})
}
