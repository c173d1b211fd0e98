package middleware_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A handler that calls code with an InTx of its own had two transactions: what the second one wrote
// stayed when the first failed, and as many handlers as the pool has connections waited for each
// other for ever.
func TestInbox_G4_InTx_in_a_handler_is_part_of_its_transaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const handlers = 4
		if database.DB.Stats().MaxOpenConnections > handlers { // SQLite has one
			database.DB.SetMaxOpenConns(handlers)
		}
		inbox := inboxFor(t, database, nil)
		var fails sync.Map
		h := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			err := postbox.InTx(msg.Context(), database.DB, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('x')")
				return err
			})
			if _, failed := fails.LoadOrStore(msg.UUID, true); err == nil && !failed {
				err = errHandler
			}
			return nil, err
		})
		var running sync.WaitGroup
		for _, id := range []string{"1", "2", "3", "4"} {
			running.Go(func() {
				for range 3 {
					_, _ = h(message.NewMessage(id, nil))
				}
			})
		}
		running.Wait()
		effects, _, dead := counts(t, database)
		require.Equal(t, []int{handlers, 0}, []int{effects, dead})
	})
}
