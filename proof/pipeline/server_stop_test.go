package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// A server that is stopped in order ends ordinary connections first, and then waits for those that
// read its log. Forwarders do not hold it up: neither an idle one, nor one whose publisher hangs.
// They go on when the server is back, and publish nothing again that was settled.
func TestServer_G2_stops_in_order_while_forwarders_read_its_log(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	idle, stuck := newTailed(t, p, "idle_"), newTailed(t, p, "stuck_")
	for _, s := range []*tailed{idle, stuck} {
		s.start(t)
		s.publish(t, 20)
		s.delivered(t)
		s.settled(t)
	}
	require.NoError(t, p.Stop(false), "with idle forwarders, and no call under way")
	require.NoError(t, p.Start(t.Context()))

	release := make(chan struct{})
	stuck.publish(t, 1)
	stuck.delivered(t)
	stuck.settled(t)
	stuck.hang(release)
	stuck.publish(t, 1)
	require.Eventually(t, func() bool { return stuck.hanging.Load() }, patience, testdb.PollPause, "a call hangs")
	require.NoError(t, p.Stop(false), "with a call that hangs")
	close(release)
	require.NoError(t, p.Start(t.Context()))
	for _, s := range []*tailed{idle, stuck} {
		s.publish(t, 20)
		s.delivered(t)
		s.stop(t)
	}
	require.Equal(t, idle.sent, idle.calls, "nothing twice")
	require.Equal(t, stuck.sent[:21], stuck.calls[:21], "nothing twice but what was under way")
}

// settled waits until no row is left.
func (s *tailed) settled(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+s.prefix+"messages").Scan(&n))
		return n == 0
	}, patience, testdb.PollPause, "what was published is settled")
}
