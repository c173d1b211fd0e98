package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A process that is newer than its tables says so when it starts. It would find no message without
// the table.
func TestDrainer_does_not_start_without_a_table_that_each_read_needs(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		database.Exec(t, "DROP TABLE postbox_topic_pauses")
		drainer := drain.New(database.DB, b.Spool, &recorder{}, config("one"), watermill.NopLogger{})
		require.ErrorIs(t, drainer.Check(t.Context()), spool.ErrNoTables)
		require.ErrorIs(t, drainer.Run(t.Context()), spool.ErrNoTables)
	})
}
