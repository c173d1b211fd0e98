package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/admin/internal/operatorsql"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A message fails while a search reads its only page, and moves on behind the messages that were
// there.
func TestSearch_finds_a_message_that_fails_meanwhile(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := enginetest.NewBench(t, database)
		operator := newOperator(database.DB, operatorsql.New(b.Statements), nil, watermill.NopLogger{})
		filter := operatorsql.MessageFilter{States: [2]int{dialect.StateReady, dialect.StateRetrying}, Limit: 10}
		for range 100 {
			b.Append(database.DB, enginetest.Draft("one", "key"))
			failed := make(chan error, 1)
			go func() {
				_, err := database.DB.ExecContext(t.Context(), "UPDATE postbox_messages SET state = 2")
				failed <- err
			}()
			found, err := operator.Search(t.Context(), b.Spool.Name(), filter, 7)
			require.NoError(t, err)
			require.Len(t, found.Messages, 1)
			require.NoError(t, <-failed)
			database.Exec(t, "DELETE FROM postbox_messages")
		}
	})
}
