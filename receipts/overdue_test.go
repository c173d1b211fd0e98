package receipts_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/receipts"
)

// Calls that hang use up the time of a step, and what is overdue after them must not wait for as
// many steps.
func TestReceiver_tells_of_others_although_calls_hang(t *testing.T) {
	t.Parallel()
	const hang, step = 8, 400 * time.Millisecond
	p := newProducer(t, testdb.SQLite(t))
	for n := range hang + 1 {
		p.database.Exec(t, "INSERT INTO postbox_receipts (receipt_key, state, due_at, sent_at, topic, message_id, consumer) VALUES (?, 0, ?, 0, 'orders', ?, 'billing')", []byte{byte(n)}, n+1, fmt.Sprint(n))
	}
	told, longest := "", time.Duration(0)
	receiver := p.receiver(receipts.Config{Retention: 100 * 365 * 24 * time.Hour, OnMissing: func(ctx context.Context, params receipts.MissingParams) error {
		if params.MessageID == fmt.Sprint(hang) {
			told = params.MessageID
			return nil
		}
		ends, _ := ctx.Deadline()
		longest = max(longest, time.Until(ends))
		<-ctx.Done()
		return ctx.Err()
	}})
	receiver.Tell(step)
	cleaner := receiver.Cleaner()
	for range hang - 2 {
		require.True(t, cleaner.Round(t.Context()))
	}
	require.NotEmpty(t, told, "it would be the turn of the next one that hangs")
	longest = 0
	require.True(t, cleaner.Round(t.Context()))
	require.Greater(t, longest, step/4, "a call that comes again has time")
}
