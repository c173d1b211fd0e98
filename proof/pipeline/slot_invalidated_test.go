package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// A server invalidates a slot that falls behind by more than max_slot_wal_keep_size. That of an outbox with rows does not fall behind while a
// forwarder reads it, whatever other work writes. A message that was in the log alone is lost if none reads, and then nothing goes on before an
// operator has accepted that.
func TestSlot_that_the_server_invalidates_is_noticed(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	rows, log := newTailed(t, p, "rows_", false), newTailed(t, p, "log_", true)
	for _, s := range []*tailed{rows, log} {
		s.start(t)
		s.publish(t, 20)
		s.delivered(t)
	}
	log.stop(t)
	log.publish(t, 1) // in the log alone

	slot := func(condition string) bool {
		var is bool
		require.NoError(t, rows.db.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_replication_slots WHERE NOT temporary AND "+condition+")").Scan(&is))
		return is
	}
	for _, statement := range []string{"ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()"} {
		_, err := rows.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		for _, statement := range []string{"SELECT pg_logical_emit_message(false, 'other work', repeat('x', 1000000))", "SELECT pg_switch_wal()", "CHECKPOINT"} {
			_, err := rows.db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		return slot("wal_status = 'lost'")
	}, patience, testdb.PollPause, "the server invalidates the slot that is not read")

	rows.publish(t, 20)
	rows.delivered(t)
	rows.stop(t)

	require.ErrorIs(t, pgtail.CheckOutbox(t.Context(), log.database(), pgtail.OutboxConfig{DSN: log.dsn}), pgtail.ErrSlotLost)
	log.start(t)
	require.ErrorIs(t, <-log.ended, pgtail.ErrSlotLost)
	_, err = pgtail.AcceptLoss(t.Context(), log.database(), pgtail.OutboxConfig{DSN: log.dsn})
	require.NoError(t, err)
	log.sent = log.sent[:20] // without the lost one
	log.start(t)
	log.publish(t, 20)
	log.delivered(t)
	log.stop(t)
}
