package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// A server that is stopped in order ends ordinary connections first, and then waits for those that read its log. Forwarders do not hold it up: neither idle ones,
// whose position is no longer stored, nor those whose publisher hangs. They go on when the server is back, and publish nothing again that was confirmed.
func TestServer_G2_stops_in_order_while_forwarders_read_its_log(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	rows, log := newTailed(t, p, "rows_", false), newTailed(t, p, "log_", true)
	stuckRows, stuckLog := newTailed(t, p, "stuckrows_", false), newTailed(t, p, "stucklog_", true)
	idle, stuck := []*tailed{rows, log}, []*tailed{stuckRows, stuckLog}
	for _, s := range append(idle, stuck...) {
		s.start(t)
		s.publish(t, 20)
		s.delivered(t)
	}
	require.Eventually(t, func() bool {
		var is bool
		err := log.db.QueryRowContext(t.Context(), `SELECT s.confirmed_flush_lsn = '0/0'::pg_lsn + p.position FROM log_log_position p JOIN pg_replication_slots s ON s.slot_name = p.slot`).Scan(&is)
		require.NoError(t, err)
		return is
	}, patience, testdb.PollPause, "the position is confirmed")
	require.NoError(t, p.Stop(false), "with idle forwarders, and no call under way")
	require.NoError(t, p.Start(t.Context()))

	release := make(chan struct{})
	for _, s := range stuck {
		s.publish(t, 1)
		s.delivered(t)
		s.hang(release)
		s.publish(t, 1)
		require.Eventually(t, func() bool { return s.hanging.Load() }, patience, testdb.PollPause, "a call hangs")
	}
	require.NoError(t, p.Stop(false), "with calls that hang")
	close(release)
	require.NoError(t, p.Start(t.Context()))
	for _, s := range append(idle, stuck...) {
		s.publish(t, 20)
		s.delivered(t)
		s.stop(t)
	}
	for _, s := range idle {
		require.Equal(t, s.sent, s.calls, "nothing twice")
	}
	for _, s := range stuck {
		require.Equal(t, s.sent[:21], s.calls[:21], "nothing twice but what was under way")
	}
}
