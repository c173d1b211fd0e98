package inbox_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/inbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// MySQL gives the statement that removes a message no way to ask whether the transaction of its
// handler is still there. It would remove the message in a transaction of its own, and what the
// handler wrote is gone.
func TestStore_G4_a_deadlock_that_a_handler_swallows_keeps_its_message(t *testing.T) {
	t.Parallel()
	database := testdb.MySQL(t)
	b := newQueueBench(t, database)
	database.Exec(t, "INSERT INTO postbox_claims (claim_key, claimed_at) VALUES ('message', 0)")
	err := inbox.CoreOf(b.Store).TransactUnguarded(t.Context(), func(ctx context.Context) error {
		tx, _ := postbox.TxFromContext(ctx)
		return swallowDeadlock(ctx, b, tx)
	}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM postbox_claims WHERE claim_key = 'message'")
		return err
	})
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM postbox_claims WHERE claim_key = 'message'"), "it is not removed")
	require.ErrorIs(t, err, inboxstore.ErrTransactionLost)
}
