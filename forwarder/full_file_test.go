package forwarder_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// wholeJournal also remembers what is logged with fields.
type wholeJournal struct{ *enginetest.Journal }

func (j wholeJournal) With(watermill.LogFields) watermill.LoggerAdapter { return j }

// A failure cannot be recorded while the file of SQLite is full. The message is not published again
// and again meanwhile, the recording is tried again after pauses, and one line says why.
func TestForwarder_G7_a_full_file_of_sqlite_makes_no_message_spin(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	publisher := publisherFor(t, database, nil)
	ids := make([]string, 20)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
		inTx(t, database.DB, publisher, "orders", newMessage(ids[i], ""))
	}
	var limit int // of the only connection
	used := database.Count(t, "PRAGMA page_count")
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "PRAGMA max_page_count = "+fmt.Sprint(used)).Scan(&limit))

	var full atomic.Bool
	full.Store(true)
	to := &broker{fail: func(string, *message.Message) error {
		if full.Load() {
			return errors.New(strings.Repeat("refused", 2000)) // no outage, and as long as two pages
		}
		return nil
	}}
	logger := wholeJournal{enginetest.NewJournal()}
	run(t, forwarderWithLog(t, database, to, nil, logger))
	said := func(level watermill.LogLevel, text string) (lines int) {
		for _, line := range logger.At(level) {
			if line.Err != nil && strings.Contains(line.Err.Error(), text) || strings.Contains(line.Msg, text) {
				lines++
			}
		}
		return lines
	}
	eventually(t, func() bool { return said(watermill.DebugLogLevel, "disk is full") >= 10 }, "it is tried again")
	require.LessOrEqual(t, to.count(), len(ids)+2, "what failed is not published meanwhile, unless its failure still found room")
	require.Equal(t, 1, said(watermill.ErrorLogLevel, "disk is full"))

	full.Store(false)
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "PRAGMA max_page_count = 100000").Scan(&limit))
	eventually(t, func() bool { return pending(t, database) == 0 }, "there is room")
	published := to.ids()
	slices.Sort(published)
	slices.Sort(ids)
	require.Equal(t, ids, slices.Compact(published))
}
