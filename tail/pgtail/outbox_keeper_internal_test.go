package pgtail

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

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
