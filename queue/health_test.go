package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/health"
	"github.com/postbox-go/watermill-postbox/internal/inboxtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestSubscriber_reports_the_health_of_each_subscription(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t).Migrate(t)
	subscriber := inboxtest.SubscriberFor(t, inboxtest.StoreFor(t, database, database.DB, nil))
	require.ErrorContains(t, health.IsReady(0, subscriber), "queue subscriber has not been started")

	_, err := subscriber.Subscribe(t.Context(), "mail")
	require.NoError(t, err)
	forAWhile, end := context.WithCancel(t.Context())
	bills, err := subscriber.Subscribe(forAWhile, "bills")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return health.IsReady(0, subscriber) == nil }, time.Minute, testdb.PollPause)
	require.Len(t, subscriber.Health(), 2)
	require.Equal(t, `queue "mail"`, subscriber.Health()[0].Name)

	end() // a subscription that ends as it should is no trouble of the others
	for range bills {
		require.Fail(t, "there is no message")
	}
	require.Eventually(t, func() bool { return len(subscriber.Health()) == 1 }, time.Minute, testdb.PollPause)
	require.NoError(t, health.IsReady(0, subscriber))

	require.NoError(t, subscriber.Close())
	require.Error(t, health.IsReady(0, subscriber))
	require.NoError(t, health.Alive(subscriber))
}
