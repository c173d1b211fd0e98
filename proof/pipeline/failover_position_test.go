package pipeline_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// A standby that lags is promoted while a message of the log is published, and the pool leads to it before the call returns. The place of that message in the log of the
// old primary is far beyond the end of the new one. If it were stored there, messages of the new primary would be skipped, and nothing would be noticed.
func TestFailover_G2_a_position_of_the_old_primary_hides_no_loss(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	s := newTailed(t, p, "log_", true)
	s.start(t)
	s.publish(t, 20)
	s.delivered(t)
	require.NoError(t, p.Sever(t.Context()))
	var slot string
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT slot, pg_logical_emit_message(false, 'lost', repeat('x', 3000000)) FROM log_log_position").Scan(&slot, new(string)))
	release := make(chan struct{})
	s.hang(release)
	s.publish(t, 1)
	require.Eventually(t, func() bool { return s.hanging.Load() }, patience, testdb.PollPause, "a call hangs")

	require.NoError(t, p.Stop(true))
	p.Relay.Cut()
	require.NoError(t, p.Promote(t.Context()))
	promoted, err := sql.Open("postgres", p.PrimaryDSN("postgres"))
	require.NoError(t, err)
	defer func() { require.NoError(t, promoted.Close()) }()
	_, err = promoted.ExecContext(t.Context(), "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", slot) // as a standby has one that keeps slots, from 17 on
	require.NoError(t, err)
	for range 50 { // the id of the transaction that was lost is given out again
		_, err = promoted.ExecContext(t.Context(), "SELECT txid_current()")
		require.NoError(t, err)
	}
	p.Relay.Move(p.Address())
	close(release)
	select {
	case err := <-s.ended:
		require.ErrorIs(t, err, pgtail.ErrSlotLost)
	case <-time.After(patience):
		require.FailNow(t, "the forwarder goes on")
	}
}
