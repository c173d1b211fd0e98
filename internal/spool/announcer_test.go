package spool_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The pool has no connection for the NOTIFY. A drainer that stops does not wait for one.
func TestAnnouncer_G12_does_not_wait_after_the_end_of_its_context(t *testing.T) {
	t.Parallel()
	database := testdb.Postgres(t)
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	db := database.Open(t)
	db.SetMaxOpenConns(1)
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Close()) }()
	a := spool.NewAnnouncer(spool.New(statements, "orders"), db, watermill.NopLogger{})
	ctx, cancel := context.WithCancel(t.Context())
	a.Within = ctx
	a.Notify()
	require.Eventually(t, func() bool { return db.Stats().WaitCount > 0 }, time.Minute, time.Millisecond, "the NOTIFY waits")
	cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		a.Close()
	}()
	select {
	case <-closed:
	case <-time.After(spool.StatementTimeout / 2):
		require.Fail(t, "Close waits for the NOTIFY")
	}
}
