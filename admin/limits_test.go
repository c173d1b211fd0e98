package admin_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// A forwarder says in its heartbeat what it is configured with, and operators store something else.
func TestQueues_have_the_limits_in_force_and_where_they_come_from(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.target = admin.Outbox("limited")
		var broker message.Publisher = gochannel.NewGoChannel(gochannel.Config{}, nil)
		f, err := forwarder.New(database.Postbox(), broker, forwarder.Config{Outbox: b.target.Name, Limits: postbox.Limits{
			Total: postbox.Limit{PerSecond: 50, MaxConcurrent: 40}, Topics: map[string]postbox.Limit{"orders": {PerSecond: 2}, "mails": {MaxConcurrent: 40}},
		}}, nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- f.Run(t.Context()) }()
		known := func() bool {
			queues, err := b.admin.Queues(t.Context())
			require.NoError(t, err)
			return len(queues) == 1 && !spool.NoLimits(queues[0].Limits)
		}
		b.eventually(known, "the forwarder tells its limits")
		limits := postbox.Limits{
			Total: postbox.Limit{PerSecond: 50, MaxConcurrent: 40}, Topics: map[string]postbox.Limit{"orders": {PerSecond: 2}, "mails": {MaxConcurrent: 40}},
		}
		require.Equal(t, limits, b.info().Limits)
		require.Zero(t, b.info().Settings, "all of them are configured")

		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{PerSecond: 10, MaxConcurrent: -1}))
		limits.Total = postbox.Limit{PerSecond: 10}
		require.Equal(t, limits, b.info().Limits)
		require.Equal(t, admin.Settings{PerSecond: 10, MaxConcurrent: -1}, b.info().Settings, "both are stored, and one is no limit")
		require.False(t, b.info().LimitsDiffer)
		require.NoError(t, f.Close())
		require.NoError(t, <-ended)
		require.Equal(t, postbox.Limits{Total: limits.Total}, b.info().Limits, "without a process, what is stored")
		require.NoError(t, storeSettings(t.Context(), b.admin, b.target, admin.Settings{}))
		require.Empty(t, b.info().Limits)
	})
}

func TestQueues_have_the_smallest_limits_of_processes_that_differ(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	b.append(draft("1", "orders", "a"))
	for holder, limits := range map[string]postbox.Limits{
		"new":   {Total: postbox.Limit{PerSecond: 50}},
		"old":   {Total: postbox.Limit{PerSecond: 20}, Topics: map[string]postbox.Limit{"orders": {PerSecond: 3}}},
		"old 2": {Total: postbox.Limit{PerSecond: 20}, Topics: map[string]postbox.Limit{"orders": {PerSecond: 2}}},
		"none":  {},
	} {
		b.join(holder, spool.Heartbeat{InFlight: map[string]int{}, Limits: limits}.Encode(), time.Hour.Microseconds())
	}
	info := b.info()
	require.True(t, info.LimitsDiffer)
	require.Equal(t, postbox.Limits{Total: postbox.Limit{PerSecond: 20}, Topics: map[string]postbox.Limit{"orders": {PerSecond: 2}}}, info.Limits)
}
