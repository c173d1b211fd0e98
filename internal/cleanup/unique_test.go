package cleanup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Drainers do not write about unique keys, so those of messages that are gone are deleted here. The
// messages are in each state, and some of them in another lane than the one in which they were
// stored.
func TestCleaner_G8_deletes_unique_keys_whose_message_is_gone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		const keys, page = 12, 5
		var drafts []spool.Draft
		for i := range keys {
			d := enginetest.Draft(fmt.Sprint(i), "")
			d.UniqueKey = d.MessageID
			if i%3 == 0 {
				d.Delay = time.Hour
			}
			drafts = append(drafts, d)
		}
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = b.Spool.AppendUnique(t.Context(), tx, spool.Unprepared, drafts)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		remains := []string{"0", "1", "2", "4"}
		database.Exec(t, "DELETE FROM postbox_messages WHERE message_id NOT IN (?, ?, ?, ?)", []byte("0"), []byte("1"), []byte("2"), []byte("4"))

		cleaner := cleanup.New(database.DB, b.Statements, "one", cleanup.Config{UniqueKeys: true, Batch: page}, watermill.NopLogger{})
		for range keys/page + 1 {
			require.True(t, cleaner.Round(t.Context()))
		}
		require.Equal(t, len(remains), database.Count(t, "SELECT COUNT(*) FROM postbox_unique_keys"))
		require.Equal(t, len(remains), database.Count(t, "SELECT COUNT(*) FROM postbox_unique_keys k JOIN postbox_messages m ON m.id = k.id"))
	})
}

// A producer may store a message under a key after the cleaner has seen that the one before is
// gone.
func TestCleaner_keeps_a_unique_key_that_has_got_another_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		seen := dialect.UniqueKey{Digest: make([]byte, 32), ID: 1, CreatedAt: 2}
		for _, now := range []dialect.UniqueKey{{ID: 3, CreatedAt: 2}, {ID: 1, CreatedAt: 4}} {
			database.Exec(t, "DELETE FROM postbox_unique_keys")
			columns, values := "digest, spool, id, created_at", []any{seen.Digest, 1, now.ID, now.CreatedAt}
			if b.Statements.Kind == dialect.PostgreSQL { // then the table has the lane, too
				columns, values = columns+", lane", append(values, 0)
			}
			database.Exec(t, "INSERT INTO postbox_unique_keys ("+columns+") VALUES (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
			query := b.Statements.RemoveUniqueKey(seen)
			_, err := database.DB.ExecContext(t.Context(), query.Text, query.Args...)
			require.NoError(t, err)
			require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_unique_keys"))
		}
	})
}
