package drain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The late committer has the lower message id and the higher transaction id: it began after the one
// that commits before it, and wrote its message before that one did. Also covers F4.
func TestDrainer_G3_handles_a_late_committer_that_began_later(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) { // SQLite has one writer: nobody can be late
		b := newBench(t, database)
		database.Exec(t, "CREATE TABLE business (id INTEGER)")
		handler := &recorder{}
		b.Append(database.DB, draft("0", "other"))
		b.start(database.DB, handler, config("one"))
		b.Eventually(func() bool { return len(handler.ids()) == 1 }, "it drains")

		var want []string
		for round := range 20 {
			early, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = early.ExecContext(t.Context(), "INSERT INTO business (id) VALUES (1)") // gives it an id
			require.NoError(t, err)
			late, err := database.DB.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			b.Append(late, draft(fmt.Sprintf("%d late", round), "key"))
			b.Append(early, draft(fmt.Sprintf("%d early", round), "other"))
			require.NoError(t, early.Commit())
			b.Eventually(func() bool { return b.Pending() == 0 }, "the early one is settled")
			// Each of these has the drainer read once more.
			for i := range 3 {
				b.Append(database.DB, draft(fmt.Sprintf("%d more %d", round, i), ""))
				b.Eventually(func() bool { return b.Pending() == 0 }, "another one is settled")
			}
			require.NoError(t, late.Commit())
			b.Append(database.DB, draft(fmt.Sprintf("%d then", round), "key"))
			b.Eventually(func() bool { return b.Pending() == 0 }, "all are settled")
			want = append(want, fmt.Sprintf("%d late", round), fmt.Sprintf("%d then", round))
		}
		var ofKey []string
		for _, id := range handler.ids() {
			if strings.HasSuffix(id, "late") || strings.HasSuffix(id, "then") {
				ofKey = append(ofKey, id)
			}
		}
		require.Equal(t, want, ofKey)
	})
}
