package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/internal/testservice"
)

// The program of the README ships an order once, and ends when it is told to.
func TestRun_G4_ships_an_order_once(t *testing.T) {
	t.Parallel()
	amqpURI, database := testservice.Address(t, testservice.AMQPVariable), testdb.Postgres(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, database.DSN, amqpURI, "example."+postbox.NewMessageID()) }()
	require.Eventually(t, func() bool {
		var shipped int // the table may not be there yet
		return database.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM shipments").Scan(&shipped) == nil && shipped == 1
	}, time.Minute, testdb.PollPause)
	stop()
	require.NoError(t, <-ended)
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM orders"))
	require.Equal(t, 1, database.Count(t, "SELECT COUNT(*) FROM shipments"))
	require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"))
}
