package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A forwarder starts in the time that it has, however many messages wait: what passes over all of
// them, as the search for the highest id of their table does, is asked by operators only.
func TestDrainer_G8_no_statement_at_the_start_passes_over_all_messages(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	b := newBench(t, database)
	b.Append(database.DB, draft("one", ""))
	db, record := database.OpenRecorded(t)
	handler := &recorder{}
	drainer := b.start(db, handler, config("one"))
	b.Eventually(func() bool { return handler.tried("one") == 1 }, "it is handled")
	drainer.stop(t)
	statements := record.Take()
	require.NotEmpty(t, statements)
	for _, statement := range statements {
		require.NotEqual(t, b.Statements.Behind, statement.Text)
	}
}
