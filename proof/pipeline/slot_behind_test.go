package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// A server invalidates a slot that falls behind by more than max_slot_wal_keep_size. That of a
// forwarder does not fall behind while it reads, whatever other work writes.
func TestSlot_of_a_forwarder_does_not_fall_behind_other_work(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	s := newTailed(t, p, "rows_")
	s.start(t)
	s.publish(t, 20)
	s.delivered(t)
	const unread = "unread"
	for _, statement := range []string{
		"SELECT pg_create_physical_replication_slot('" + unread + "', true)",
		"ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()",
	} {
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		for _, statement := range []string{"SELECT pg_logical_emit_message(false, 'other work', repeat('x', 1000000))", "SELECT pg_switch_wal()", "CHECKPOINT"} {
			_, err := s.db.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		var lost bool
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT wal_status = 'lost' FROM pg_replication_slots WHERE slot_name = '"+unread+"'").Scan(&lost))
		return lost
	}, patience, testdb.PollPause, "the server invalidates the slot that is not read")
	var reads bool
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_replication_slots WHERE temporary AND active AND wal_status <> 'lost')").Scan(&reads))
	require.True(t, reads, "that of the forwarder is as it was")
	s.publish(t, 20)
	s.delivered(t)
	s.stop(t)
}
