package drain

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Removals and workers settle in goroutines of their own, while the drainer's takes over what an
// operator has set.
func TestSettlement_the_time_of_a_part_is_known_beside_the_drainers_goroutine(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	own := newOutbox(t, database)
	d, end := newStepped(database.DB, own, 10)
	t.Cleanup(end)
	require.NoError(t, d.tryOpen(t.Context()))
	var took time.Duration
	var beside sync.WaitGroup
	beside.Go(func() { took = d.partTime(2) })
	require.NoError(t, d.applySettings(t.Context()))
	beside.Wait()
	require.Equal(t, d.configured.Renew/partsPerRenewal, took)
}
