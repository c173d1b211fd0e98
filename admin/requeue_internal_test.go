package admin

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin/internal/audit"
	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A letter is requeued under the lanes that its transaction has read, however long the process has
// known the outbox.
func TestRequeue_reads_the_lanes_once(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		id, err := b.Spool.Open(t.Context(), database.DB)
		require.NoError(t, err)
		db, record := database.OpenRecorded(t)
		letters := newLetters(db, operatorsql.New(b.Statements), audit.NewAuditor(b.Statements, ""), b.Spool.Name(), watermill.NopLogger{})
		const many = 3
		for n := range many {
			database.Exec(t, `INSERT INTO postbox_dead_letters (spool, origin, subject, error, consumer, topic, message_id, payload, metadata, created_at, died_at, attempts)
				VALUES (?, 0, ?, 'no', '', 'orders', ?, ?, ?, 1, 2, 3)`, id, []byte("s"), []byte("m"), []byte("p"), []byte("{}"))
			record.Take()
			require.NoError(t, letters.Requeue(t.Context(), int64(database.Count(t, "SELECT id FROM postbox_dead_letters")), Again{}))
			reads := 0
			for _, statement := range record.Take() {
				if strings.Contains(statement.Text, "postbox_spools") && !strings.Contains(statement.Text, "postbox_dead_letters") {
					reads++
				}
			}
			require.Zero(t, reads, "%d: the letter has the name", n)
			for _, known := range letters.spools {
				known.Forget() // as one that was read long ago
			}
		}
		require.Equal(t, many, b.Pending())
		require.Equal(t, many, database.Count(t, "SELECT COUNT(DISTINCT lane) FROM postbox_messages"), "messages without a key go to all lanes in turn")
	})
}
