package forwarder_test

import (
	"context"
	"database/sql"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const century = 100 * 365 * 24 * time.Hour

func TestNewPublisher_refuses_an_expectation_of_centuries(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	for within, want := range map[time.Duration]string{
		0: "Within: 0s is less than 1ms", time.Millisecond - 1: "is less than 1ms", century + 1: "is more than 100 years", math.MaxInt64: "is more than 100 years",
	} {
		_, err := forwarder.NewPublisher(database.Postbox(), forwarder.PublisherConfig{
			Receipts: []forwarder.Expectation{{Topic: "orders", Consumers: []string{"billing"}, Within: within}},
		}, nil)
		require.ErrorContains(t, err, `Receipts: topic "orders": Within: `)
		require.ErrorContains(t, err, want)
	}
}

func TestPublisher_a_receipt_of_the_longest_expectation_can_be_seen(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		database.Migrate(t)
		publisher := publisherFor(t, database, func(c *forwarder.PublisherConfig) {
			c.Receipts = []forwarder.Expectation{{Topic: "orders", Consumers: []string{"billing"}, Within: century}}
		})
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
