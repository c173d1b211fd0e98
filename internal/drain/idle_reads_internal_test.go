package drain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Many ids were given, and the watermark is not known: on MySQL it never is, elsewhere not while a
// transaction is open that has stored messages.
func TestPoll_reads_once_while_the_watermark_is_unknown(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		own := newOutbox(t, database)
		id, err := own.Open(t.Context(), database.DB)
		require.NoError(t, err)
		require.Positive(t, id)
		tx, err := database.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		drafts := []spool.Draft{{Topic: "a", MessageID: "1"}, {Topic: "a", MessageID: "2"}, {Topic: "a", MessageID: "3"}}
		require.NoError(t, own.Append(t.Context(), tx, spool.Run, drafts))
		db, record := database.OpenRecorded(t)
		d, end := newStepped(db, own, 10)
		t.Cleanup(end)
		d.reader.handler = without{}
		require.NoError(t, d.tryOpen(t.Context()))
		require.NoError(t, d.upkeep(t.Context()))
		require.NoError(t, d.applySettings(t.Context()))
		d.reader.stride.span = 1
		require.NoError(t, d.reader.poll(t.Context()))
		require.Zero(t, d.reader.watermark.safe)
		require.Greater(t, d.reader.watermark.given, d.reader.stride.span)
		const polls = 5
		record.Take()
		for range polls {
			d.pace.at = time.Time{}
			require.NoError(t, d.reader.poll(t.Context()))
		}
		reads := 0
		for _, statement := range record.Take() {
			if strings.Contains(statement.Text, "postbox_spools") {
				reads++
			}
		}
		require.Equal(t, polls, reads)
	})
}
