package admin_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestPublisher_a_receipt_of_the_longest_expectation_can_be_seen(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{
			Receipts: []forwarder.Expectation{{Topic: "orders", Consumers: []string{"billing"}, Within: 100 * 365 * 24 * time.Hour}},
		}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, publisher.Close()) }()
		require.NoError(t, postbox.InTx(t.Context(), database.DB, func(ctx context.Context, _ *sql.Tx) error {
			return publisher.Publish("orders", message.NewMessageWithContext(ctx, "1", nil))
		}))
		operator, err := admin.New(database.Postbox(), admin.Config{}, nil)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			found, _, err := operator.Receipts(t.Context(), admin.Filter{OlderThan: time.Microsecond})
			require.NoError(t, err)
			return len(found) == 1
		}, time.Minute, testdb.PollPause)
	})
}
