package cleanup_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/cleanup"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Calls that hang use up the time of a step, and what is overdue after them must not wait for as
// many steps.
func TestCleaner_tells_of_others_although_calls_hang(t *testing.T) {
	t.Parallel()
	const hang, step = 8, 400 * time.Millisecond
	b := newBench(t, testdb.SQLite(t))
	for n := range hang + 1 {
		b.Database.Exec(t, "INSERT INTO postbox_receipts (receipt_key, state, due_at, sent_at, topic, message_id, consumer) VALUES (?, 0, ?, 0, 'orders', ?, 'billing')", []byte{byte(n)}, n+1, fmt.Sprint(n))
	}
	told, longest := "", time.Duration(0)
	cleaner := cleanup.New(b.Database.DB, b.Statements, "receiver", cleanup.Config{
		Receipts: 100 * 365 * 24 * time.Hour, Tell: step, Missed: func(ctx context.Context, overdue receipt.Stored) error {
			if overdue.MessageID == fmt.Sprint(hang) {
				told = overdue.MessageID
				return nil
			}
			ends, _ := ctx.Deadline()
			longest = max(longest, time.Until(ends))
			<-ctx.Done()
			return ctx.Err()
		},
	}, watermill.NopLogger{})
	for range hang - 2 {
		require.True(t, cleaner.Round(t.Context()))
	}
	require.NotEmpty(t, told, "it would be the turn of the next one that hangs")
	longest = 0
	require.True(t, cleaner.Round(t.Context()))
	require.Greater(t, longest, step/4, "a call that comes again has time")
}
