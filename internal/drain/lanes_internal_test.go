package drain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func held(exposed int) *laneSet {
	set := newLaneSet()
	set.held[1] = &lane{number: 1, token: 3, suspect: exposed > 0, exposedToRead: exposed}
	return set
}

func ofLane(id, token int64) *spool.Message {
	return &spool.Message{Ref: dialect.Ref{ID: id, Lane: 1, Token: token}}
}

func TestLaneSet_messages_that_the_previous_holder_may_have_started_are_exposed(t *testing.T) {
	t.Parallel()
	set := held(2)
	first, second, third := ofLane(1, 3), ofLane(2, 3), ofLane(3, 3)
	for _, m := range []*spool.Message{first, second, third} {
		set.expose(m)
	}
	require.True(t, first.Exposed)
	require.True(t, second.Exposed)
	require.False(t, third.Exposed, "a drainer has no more messages in memory")
	set.unexpose(third)
	set.unexpose(second) // left where it is: it is a suspect when it is read again
	require.Equal(t, 1, set.held[1].exposedToRead)
	require.Equal(t, 1, set.held[1].exposedInMemory)
	again := ofLane(2, 3)
	set.expose(again)
	require.True(t, again.Exposed)
	set.endExposure(first)
	set.endExposure(again)
	require.Zero(t, set.held[1].exposedInMemory)
}

func TestLaneSet_ignores_a_message_with_an_earlier_token(t *testing.T) {
	t.Parallel()
	set := held(2)
	m := ofLane(1, 2)
	set.expose(m)
	require.False(t, m.Exposed)
	m.Exposed = true
	set.endExposure(m)
	set.unexpose(m)
	require.Equal(t, 2, set.held[1].exposedToRead)
	require.Zero(t, set.held[1].exposedInMemory)
}

// Another process has joined, and a lane of a crashed process is to be given away, of which a call
// hangs. The lane stays, and its messages are read again. When all of them are done, no message can
// be the one that crashed the process.
func TestGiveAway_a_lane_that_stays_is_cleared_when_its_messages_are_done(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		const last = dialect.Lanes - 1 // the lane that would go first
		own := newOutbox(t, database)
		for _, key := range append(keysOf(0, counted/2), keysOf(last, counted/2)...) {
			require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: key, Key: key}}))
		}
		d, end := newStepped(database.DB, own, counted*dialect.Lanes)
		t.Cleanup(end)
		d.configured.Workers = 0 // the test works
		require.NoError(t, d.tryOpen(t.Context()))
		database.Exec(t, "UPDATE postbox_lanes SET suspect = 1")
		require.NoError(t, d.applySettings(t.Context()))
		require.NoError(t, d.upkeep(t.Context()))
		d.lease.permit()
		d.scheduler.SetWorkers(counted)
		require.NoError(t, d.reader.poll(t.Context()))
		var hangs []*schedule.Entry
		for hangs == nil {
			batch := d.scheduler.TryTake()
			require.NotNil(t, batch)
			if batch[0].Message.Ref.Lane == last {
				hangs = batch
			} else {
				d.scheduler.Finish(batch, one(spool.Done))
			}
		}
		require.True(t, hangs[0].Message.Exposed)
		d.lease.members = 2
		d.lease.giveAway()
		require.True(t, d.lanes.held[last].leaving)
		d.scheduler.ReplaceHung(time.Now().Add(time.Hour))
		d.lease.giveAway()
		require.False(t, d.lanes.held[last].leaving, "it stays")

		d.scheduler.Finish(hangs, one(spool.Done))
		require.Eventually(t, func() bool {
			for batch := d.scheduler.TryTake(); batch != nil; batch = d.scheduler.TryTake() {
				d.scheduler.Finish(batch, one(spool.Done))
			}
			d.step(t.Context())
			return !d.lanes.held[last].suspect
		}, time.Minute, testdb.PollPause, "it is cleared")
		require.Zero(t, d.lanes.held[last].exposedInMemory)
	})
}
