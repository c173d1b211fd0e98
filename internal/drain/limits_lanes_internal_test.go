package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/operate"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// While another process handles messages in old lanes, it uses up the rate. So this one saves up nothing in the lanes that it has already.
func TestLimits_new_lanes_save_up_nothing_while_messages_are_in_old_lanes(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	own := newOutbox(t, database, 2)
	d, end := newStepped(database.DB, own, 50)
	t.Cleanup(end)
	const rate = 4
	d.configured.Limits = postbox.Limits{Total: postbox.Limit{PerSecond: rate}, EachKey: postbox.Limit{PerSecond: rate}}
	d.started = 1 << 20 // it never starts a worker
	require.NoError(t, d.tryOpen(t.Context()))
	step := func(until func() bool) (lastBegan time.Time) {
		deadline := time.Now().Add(time.Minute)
		for !until() {
			lastBegan = time.Now()
			require.True(t, lastBegan.Before(deadline), "the condition is not met")
			d.pollAt, d.control.checkedAt = time.Time{}, time.Time{}
			d.step(t.Context())
		}
		return lastBegan
	}
	inMemory := func() int { n, _ := d.scheduler.Size(); return n }
	step(func() bool { return d.counts })

	var drafts []spool.Draft
	for i := range 40 {
		drafts = append(drafts, spool.Draft{Topic: "a", MessageID: fmt.Sprint(i), Key: fmt.Sprint(i), Payload: []byte{}})
	}
	require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, drafts))
	database.Exec(t, "UPDATE postbox_lanes SET holder = 'other', token = token + 1, expires_at = ?", time.Now().Add(time.Hour).UnixMicro())
	d.renewAt = time.Time{}
	operator := operate.NewOperator(database.DB, own.Statements, operate.NewAuditor(own.Statements, ""), watermill.NopLogger{}).Settling(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := operator.SetLanes(ctx, own.Name(), 3, func(operate.Progress) {})
	require.ErrorContains(t, err, "held by other")
	step(func() bool { return d.layout.Lanes == 3 && len(d.lanes.numbers()) == 3 })
	since := time.Now()
	step(func() bool { return time.Since(since) > time.Second/rate }) // long enough to save up a message
	require.Zero(t, inMemory())

	database.Exec(t, "UPDATE postbox_lanes SET expires_at = 1 WHERE holder = 'other'")
	since = step(func() bool { return inMemory() > 0 })
	taken := 0
	for batch := d.scheduler.TryTake(); batch != nil; batch = d.scheduler.TryTake() {
		taken += len(batch)
	}
	require.LessOrEqual(t, float64(taken), rate*time.Since(since).Seconds())
}
