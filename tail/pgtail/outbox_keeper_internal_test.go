package pgtail

import (
	"database/sql"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/tail"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A portion is stored under the lanes that its transaction has read, however long the process has known the outbox.
func TestKeeper_reads_the_lanes_once_for_each_portion(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	db, record := database.OpenRecorded(t)
	k := &keeper{outbox: tail.Outbox{DB: db, Statements: statements, Logger: watermill.NopLogger{}}, spools: map[string]*target{}}
	portions := []portion{{messages: []received{{outbox: "outbox", lanes: 4, draft: spool.Draft{Topic: "orders", MessageID: "m"}}}}}
	reads := func() int {
		record.Take()
		require.NoError(t, spool.InTx(t.Context(), db, statements, func(tx *sql.Tx) error { return k.append(t.Context(), tx, portions) }))
		return len(record.Take())
	}
	require.Equal(t, 2, reads(), "before and after it is registered")
	for range 3 {
		require.Equal(t, 1, reads())
		for _, known := range k.spools {
			known.spool.Forget() // as one that was read long ago
		}
	}
	require.Equal(t, 4, database.Count(t, "SELECT lanes FROM postbox_spools WHERE name = 'outbox'"))
	require.Equal(t, 4, database.Count(t, "SELECT COUNT(DISTINCT lane) FROM postbox_messages"), "messages without a key go to all lanes in turn")
}

// A process has much to catch up with, so the server has sent less of its log than there is. What is stored is confirmed all the same, as soon as it is on the disk: a
// process that is ended again and again would read the same log each time.
func TestKeeper_G2_confirms_what_is_on_the_disk_before_the_rest_of_the_log_was_read(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	database.Migrate(t)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	stored := dialect.LogPosition{Position: 1000, Epoch: 1}
	require.NoError(t, database.DB.QueryRowContext(t.Context(), "SELECT extract(epoch FROM pg_postmaster_start_time())::text").Scan(&stored.Server))
	database.Exec(t, "INSERT INTO postbox_log_position (id, slot, position, part, epoch, saved_at) VALUES (1, 'slot', ?, 0, 1, 0)", stored.Position)
	prepared := spool.NewPrepared(database.DB)
	t.Cleanup(prepared.Close)
	k := &keeper{
		outbox: tail.Outbox{DB: database.DB, Statements: statements, Logger: watermill.NopLogger{}}, intake: newIntake(stored), position: stored, prepared: prepared, succeeds: func() {},
	}
	const passed = 1000 + passedMost
	k.intake.passedBy(passed)
	require.NoError(t, k.confirm(t.Context()))
	require.Equal(t, passed, database.Count(t, "SELECT position FROM postbox_log_position"))
	own := k.savedBy
	k.savedBy = math.MaxInt64
	require.NoError(t, k.confirm(t.Context()))
	require.Zero(t, k.intake.confirmable(), "as long as it is not on the disk, a crash of the server may undo it")
	k.savedBy = own
	require.Eventually(t, func() bool {
		assert.NoError(t, k.confirm(t.Context()))
		return k.intake.confirmable() == passed
	}, time.Minute, testdb.PollPause, "it is confirmed once it is on the disk")

	k.saved, k.position.Server = 0, "another"
	require.ErrorIs(t, k.confirm(t.Context()), errFenced)
}
