package drain_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// changeLanes has three processes handle messages while the number of lanes changes.
func (b *bench) changeLanes(w *watch, limits postbox.Limits) (messages int) {
	b.T.Helper()
	for _, name := range []string{"one", "two", "three"} {
		p := b.spawn(name, w.handler, func(c *drain.Config) {
			c.Limits, c.Workers, c.BatchSize, c.Lease, c.Renew = limits, 8, 1, config("").Lease, config("").Renew
		})
		signal(b.T, p.Ready(), "it is there")
	}
	const part = 40
	for _, n := range []int{3, 12, 1, 6} {
		b.Append(b.Database.DB, drafts(messages+part, func(i int) string { return fmt.Sprint(i % 30) })[messages:]...)
		messages += part
		_, err := b.setLanes(b.T.Context(), n)
		require.NoError(b.T, err)
		b.Eventually(func() bool { return b.Pending() < part/2 }, "they work")
	}
	b.Eventually(func() bool { return b.Pending() == 0 }, "all are handled")
	return messages
}

// The limit has slots for all lanes at some times, and for the first one only at others.
func TestDrainer_limits_of_calls_at_once_hold_while_the_number_of_lanes_changes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	w := newWatch()
	const n = 6
	messages := b.changeLanes(w, postbox.Limits{Total: postbox.Limit{AtOnce: n}})
	require.LessOrEqual(t, w.most, n)
	require.Greater(t, w.most, n/2, "and they are used")
	require.Len(t, w.handled, messages, "each message once")
}

func TestDrainer_limits_of_a_rate_hold_while_the_number_of_lanes_changes(t *testing.T) {
	t.Parallel()
	b := newBench(t, testdb.Postgres(t))
	w := newWatch()
	messages := b.changeLanes(w, postbox.Limits{Total: postbox.Limit{PerSecond: 200}})
	w.inRate(t, 200, 3, 8)
	require.Len(t, w.handled, messages, "each message once")
}
