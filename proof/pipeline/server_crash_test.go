package pipeline_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/proof/clustertest"
	"github.com/postbox-go/watermill-postbox/proof/testcluster"
)

// The position of messages without rows is committed without waiting for the disk, so a crash of the server may undo it. Then messages come again, in order. None is
// missed, and the forwarder does not take the slot for a lost one: it confirms a position when the disk has it.
func TestServer_G2_that_crashes_may_undo_the_position_in_the_log(t *testing.T) {
	t.Parallel()
	p, err := testcluster.StartPostgres(t.Context())
	clustertest.Require(t, p, err)
	s := newTailed(t, p, "log_", true)
	for _, statement := range []string{"ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"} { // what no commit waits for stays in memory for long
		_, err := s.db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	position := func() (at int64, lacking bool) { // whether the disk lacks something
		require.Eventually(t, func() bool {
			return s.db.QueryRowContext(t.Context(), "SELECT position, pg_current_wal_flush_lsn() < pg_current_wal_insert_lsn() FROM log_log_position").Scan(&at, &lacking) == nil
		}, patience, testdb.PollPause, "the server answers")
		return at, lacking
	}
	s.start(t)
	// Each commit that waits for the disk takes the position there as well, such as those by which a forwarder starts. So the server crashes when the disk lacks something.
	before, _ := position()
	for deadline := time.Now().Add(3 * patience); ; { // a busy machine needs several crashes
		require.True(t, time.Now().Before(deadline), "a crash undoes a position that was stored")
		s.publish(t, 20)
		s.delivered(t)
		var stored int64
		var lacking bool
		require.Eventually(t, func() bool { stored, lacking = position(); return stored > before }, patience, testdb.PollPause, "the position is stored")
		if before = stored; !lacking {
			continue
		}
		require.NoError(t, p.Stop(true))
		require.NoError(t, p.Start(t.Context()))
		if before, _ = position(); before < stored {
			break
		}
	}
	s.publish(t, 20)
	s.delivered(t)
	s.stop(t)
	require.Zero(t, s.stored(t))
}
