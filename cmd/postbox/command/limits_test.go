package command_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// limited is an outbox and a queue with limits.
func limited(t *testing.T) *bench {
	t.Helper()
	b := newBench(t, testdb.SQLite(t))
	b.append(b.outbox, draft("m-1", "orders", "k"))
	b.append(b.queue, draft("m-2", "fraud", "k"))
	process := func(of *spool.Spool, holder string, limits postbox.Limits) {
		id, err := of.Open(t.Context(), b.database.DB)
		require.NoError(t, err)
		beat := spool.Heartbeat{InFlight: map[string]int{}, Limits: limits}
		b.exec(b.statements.Join(dialect.JoinParams{Member: dialect.Member{Spool: id, Holder: holder}, InFlight: beat.Encode(), TTL: time.Hour.Microseconds()}))
	}
	process(b.outbox, "host 42", postbox.Limits{
		Total: postbox.Limit{PerSecond: 50, MaxConcurrent: 40}, Topics: map[string]postbox.Limit{"orders\x1b": {PerSecond: 2}},
	})
	process(b.queue, "host 42", postbox.Limits{Total: postbox.Limit{MaxConcurrent: 40}})
	process(b.queue, "host 43", postbox.Limits{})
	require.NoError(t, storeSettings(t.Context(), b.admin(), admin.Outbox("outbox"), admin.Settings{PerSecond: 10, MaxConcurrent: -1}))
	return b
}

func TestOutput_of_limits(t *testing.T) {
	t.Parallel()
	eachOutput(t, limited, map[string]string{"queues-limits": "queues"})
}

// storeSettings stores settings in place of those that are stored.
func storeSettings(ctx context.Context, a *admin.Admin, target admin.Target, settings admin.Settings) error {
	_, err := a.ChangeSettings(ctx, target, func(stored *admin.Settings) error {
		*stored = settings
		return nil
	})
	return err
}
