package command_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/cmd/postbox/command"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/receipt"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// confirmed is a producer that knows receipts of each status.
func confirmed(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, testdb.SQLite(t))
	row := func(id, consumer string, due time.Duration) dialect.ReceiptRow {
		return dialect.ReceiptRow{
			Key: receipt.Key(id, "orders", consumer), Topic: "orders", MessageID: []byte(id), Consumer: consumer,
			Due: written.UnixMicro(), Within: due.Microseconds(),
		}
	}
	missing := row("m-1", "stock", 5*time.Minute)
	for _, query := range b.statements.AwaitReceipts([]dialect.ReceiptRow{
		row("m-1", "billing", 5*time.Minute), missing, row("m-2", "stock", 5*time.Minute), row("m-3", "stock", 100*365*24*time.Hour),
	}) {
		b.exec(query)
	}
	came := dialect.ReceivedRow{
		Key: receipt.Key("m-1", "orders", "billing"), HandledAt: written.Add(time.Second).UnixMicro(),
	}
	b.exec(b.statements.FulfilReceipt(came, dialect.ReceiptAwaited))
	b.exec(b.statements.AddReceipt(dialect.ReceivedRow{
		Key: receipt.Key("m-1", "orders", "audit\x1b"), Topic: "orders", MessageID: []byte("m-1"), Consumer: "audit\x1b", HandledAt: written.Add(time.Minute).UnixMicro(),
	}))
	b.exec(b.statements.MissReceipt(missing.Key))
	b.database.Exec(t, "UPDATE postbox_receipts SET received_at = ? WHERE received_at IS NOT NULL", written.Add(2*time.Second).UnixMicro())
	b.database.Exec(t, "UPDATE postbox_receipts SET due_at = received_at WHERE sent_at IS NULL")
	return b
}

func TestOutput_of_receipts(t *testing.T) {
	t.Parallel()
	eachOutput(t, confirmed, map[string]string{
		"receipts-show":       "receipts show m-1",
		"receipts-none":       "receipts show m-4",
		"receipts-missing":    "receipts missing",
		"receipts-older":      "receipts missing --older-than 5m --consumer stock",
		"receipts-any-age":    "receipts missing --older-than 0s",
		"receipts-limit":      "receipts missing --limit 1",
		"receipts-wrong-page": "receipts missing --after 7",
	})
}

func TestReceipts_missing_wrong_usage(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.SQLite(t))
	for _, args := range [][]string{{"--limit", "0"}, {"--limit", "1001"}, {"--older-than", "soon"}} {
		r := b.run(append([]string{"receipts", "missing"}, args...)...)
		require.Equal(t, command.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, args[0])
	}
}
