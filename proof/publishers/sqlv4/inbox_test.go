// Package sqlv4_test tries the inbox behind the subscriber of watermill-sql v4, which the main
// module does not require.
package sqlv4_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/middleware"
)

const patience = 20 * time.Second

// A handler that asks v4 for the transaction of the subscriber gets none: what it wrote there would
// not commit with the claim.
func TestInbox_works_apart_from_the_transaction_of_the_subscriber_of_watermill_sql_v4(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		inbox, subscriber, publisher := bench(t, database)
		failures := 0
		run(t, func(router *message.Router) {
			router.AddConsumerHandler("billing", "orders", subscriber, func(msg *message.Message) error {
				_, hidden := wmsql.TxFromContext(msg.Context())
				require.False(t, hidden)
				tx, ok := postbox.TxFromContext(msg.Context())
				require.True(t, ok)
				if _, err := tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES ('x')"); err != nil {
					return err
				}
				if failures++; failures <= 2 {
					return errors.New("handler says no")
				}
				return nil
			}).AddMiddleware(inbox.Middleware)
		})
		for i := range 3 {
			for range 2 { // each comes twice
				require.NoError(t, publisher.Publish("orders", message.NewMessage(fmt.Sprint(i), []byte("{}"))))
			}
		}
		require.Eventually(t, func() bool {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_claims") == 3
		}, patience, 5*time.Millisecond)
		require.Equal(t, 3, database.Count(t, "SELECT COUNT(*) FROM effects"))
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"))
	})
}

// bench returns an inbox, and a subscriber and a publisher of watermill-sql v4 in the same
// database.
func bench(t *testing.T, database *testdb.Database) (*middleware.Inbox, message.Subscriber, message.Publisher) {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (id VARCHAR(100))")
	store, err := inboxstore.New(database.Postbox(), inboxstore.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{}, nil)
	require.NoError(t, err)
	publisher, subscriber, _ := adapters(t, database)
	return inbox, subscriber, publisher
}

func run(t *testing.T, add func(*message.Router)) {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	add(router)
	done := make(chan error, 1)
	go func() { done <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		_ = router.Close()
		require.NoError(t, <-done)
	})
}
