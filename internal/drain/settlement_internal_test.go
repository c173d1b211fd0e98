package drain

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Many messages end at once, and the database refuses to write the failure of one. What was written
// of the others stays so, and the one is found in few transactions.
func TestSettlement_finds_the_message_that_is_refused_in_few_transactions(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		const done, failed, most = 4, counted - 4, 6 // of 16 messages
		c := newCounter(t, database)
		change := "DELETE ON postbox_messages" // a failed message moves to another table
		if database.Dialect != postbox.PostgreSQL {
			change = "UPDATE ON postbox_messages"
		}
		end := conflictOn(t, database, change, "OLD.message_id = '13'")
		d := c.d
		d.config.Retry = retries.WithDefaults(postbox.RetryProfile{}, 3)
		d.scheduler.SetWorkers(counted)
		d.scheduler.Load(c.suspects)
		for n := range counted {
			outcomes := one(spool.Retry)
			if n < done {
				outcomes = one(spool.Done)
			}
			outcomes[0].Err, outcomes[0].After = errNotRemoved, time.Hour
			d.scheduler.Finish(d.scheduler.Take(), outcomes)
		}
		d.settle.unsettled = d.scheduler.TakeFinished()
		require.NoError(t, d.settleUnsettled(t.Context()))

		waiting := func() int {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 1")
		}
		require.Equal(t, failed, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "what is done is gone")
		require.Equal(t, failed-1, waiting())
		if database.Dialect == postbox.PostgreSQL {
			require.LessOrEqual(t, database.Count(t, "SELECT COUNT(DISTINCT xmin::text) FROM postbox_waiting"), most, "transactions")
		}
		require.Len(t, d.settle.setbacks.known, 1, "nothing else had a setback")
		require.Len(t, d.settle.setbacks.resting, 1)
		require.Equal(t, "13", d.settle.setbacks.resting[0].Message.MessageID)
		all, _ := d.scheduler.Size()
		require.Equal(t, 1, all)
		require.False(t, d.lease.renewalDue(), "no lane was lost")

		end()
		d.settle.unsettled = d.settle.setbacks.resting
		d.settle.setbacks.resting = nil
		require.NoError(t, d.settleUnsettled(t.Context()))
		require.Equal(t, failed, waiting())
		require.Empty(t, d.settle.unsettled)
	})
}

// The drainer may find while a settlement is under way, when it renews its leases, that its
// database has gone back. It then settles what waited for a removal or for a lock, too. Also covers
// G6.
func TestSettlement_G3_a_drainer_that_starts_over_meanwhile_forgets_no_message(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		c := newCounter(t, database)
		d := c.d
		d.config.Retry = retries.WithDefaults(postbox.RetryProfile{}, 3)
		d.scheduler.SetWorkers(counted)
		d.scheduler.Load(c.suspects[:3])
		for _, verdict := range []spool.Verdict{spool.Done, spool.Retry, spool.Done} {
			d.scheduler.Finish(d.scheduler.Take(), []spool.Outcome{{Verdict: verdict, Err: errNotRemoved, After: time.Hour}})
		}
		finished := d.scheduler.TakeFinished()
		d.settle.done = finished[:1:1]
		d.settle.unsettled = finished[1:2:2]
		d.settle.awaitLock(finished[2])
		database.Exec(t, "UPDATE postbox_lanes SET token = token - 1")

		end := d.beginUnsettled(t.Context())
		require.NoError(t, d.upkeep(t.Context()))
		require.True(t, d.past.reopen, "it has started over")
		require.NoError(t, end())
		inMemory, _ := d.scheduler.Size()
		require.Equal(t, inMemory, len(d.settle.unsettled)+len(d.settle.done)+len(d.settle.setbacks.resting), "each will be settled")
	})
}

// The database answers neither a settlement nor the removal that began before. When the time is
// over, the removal ends, too, and its message still counts.
func TestSettleRest_G12_ends_the_removal_that_is_under_way(t *testing.T) {
	t.Parallel()
	c := newCounter(t, testdb.SQLite(t))
	d := c.d
	d.config.Retry = retries.WithDefaults(postbox.RetryProfile{}, 3)
	d.scheduler.SetWorkers(counted)
	d.scheduler.Load(c.suspects[:2])
	for _, verdict := range []spool.Verdict{spool.Done, spool.Retry} {
		d.scheduler.Finish(d.scheduler.Take(), []spool.Outcome{{Verdict: verdict, Err: errNotRemoved}})
	}
	finished := d.scheduler.TakeFinished()
	d.settle.unsettled, d.settle.removal.underWay = finished[1:2], finished[:1]
	d.settle.removal.abort = sync.OnceFunc(func() { d.settle.ended <- settledPart{by: removeDone, part: finished[:1], err: context.Canceled} })
	writer, err := c.database.Open(t).Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = writer.Close() }()
	_, err = writer.ExecContext(t.Context(), "BEGIN IMMEDIATE") // no other transaction can write meanwhile
	require.NoError(t, err)
	over, end := context.WithCancel(t.Context())
	end()
	require.Error(t, d.settle.settleRemaining(over))
	require.Empty(t, d.settle.removal.underWay)
	require.Empty(t, d.settle.part.underWay)
	require.Equal(t, 2, unrecorded(d.unsettledYet()))
}

// The outbox for dead letters refuses one after another, and each is loaded for it: they must not
// stay in memory.
func TestSettlement_G8_unloads_a_dead_letter_that_is_refused(t *testing.T) {
	t.Parallel()
	c := newCounter(t, testdb.SQLite(t))
	d := c.d
	refused := 0
	d.config.Retry = retries.WithDefaults(postbox.RetryProfile{}, 3)
	d.configured.Buried = func(_ context.Context, m *spool.Message, _ int, _ error) error {
		require.True(t, m.Loaded, "the outbox has its payload")
		refused++
		return errNotRemoved
	}
	d.scheduler.SetWorkers(counted)
	d.scheduler.Load(c.suspects[:1])
	d.scheduler.Finish(d.scheduler.Take(), []spool.Outcome{{Verdict: spool.Dead, Err: errNotRemoved}})
	d.settle.unsettled = d.scheduler.TakeFinished()
	m := d.settle.unsettled[0].Message
	m.Unload()
	require.NoError(t, d.settleUnsettled(t.Context()))
	require.Equal(t, 1, refused)
	require.Len(t, d.settle.setbacks.resting, 1)
	require.False(t, m.Loaded)
	require.Nil(t, m.Payload)
}

// A step that fails for another reason while the leases are due leaves the renewal to the next
// step.
func TestSettlement_G6_renews_leases_after_a_step_that_failed(t *testing.T) {
	t.Parallel()
	c := newCounter(t, testdb.SQLite(t))
	d := c.d
	d.scheduler.SetWorkers(counted)
	d.scheduler.Load(c.suspects[:1])
	d.scheduler.Finish(d.scheduler.Take(), one(spool.Done))
	d.pace.renewAt = time.Time{}
	d.stepFailed(errNotRemoved)
	require.True(t, d.trouble.renewal)
	d.trouble.until = time.Now() // its pause is over

	d.step(t.Context())
	require.False(t, d.lease.renewalDue())
}

// A read leaves out a message since an earlier one of its key has failed, and is not settled yet.
// Reads after it need not find the message again, and it stays exposed all the same.
func TestSettlement_F5_what_reads_leave_out_stays_exposed(t *testing.T) {
	t.Parallel()
	database := testdb.SQLite(t)
	own := newOutbox(t, database)
	key := keysOf(0, 1)[0]
	for _, id := range []string{"fails", "behind"} {
		require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, []spool.Draft{{Topic: "orders", MessageID: id, Key: key}}))
	}
	d, end := newStepped(database.DB, own, dialect.Lanes) // a read has one message of each lane
	t.Cleanup(end)
	d.config.Retry = retries.WithDefaults(postbox.RetryProfile{Base: time.Hour, Cap: time.Hour, Jitter: -1}, 1)
	d.workers.started = 1 << 20 // it never starts a worker
	require.NoError(t, d.tryOpen(t.Context()))
	database.Exec(t, "UPDATE postbox_lanes SET holder = 'crashed'")
	d.step(t.Context())
	d.scheduler.Finish(d.scheduler.Take(), []spool.Outcome{{Verdict: spool.Retry, Err: errNotRemoved}})
	start := d.settle.start
	var work func()
	d.settle.start = func(begun func()) { work = begun }
	for range 3 {
		d.reader.watermark.safe, d.pace.at = firstStride/2, time.Time{} // reads need not return to what they have passed
		d.step(t.Context())
	}
	d.settle.start = start
	work()
	d.step(t.Context())
	found := d.scheduler.Snapshot().Messages
	require.Len(t, found, 1)
	require.Equal(t, "behind", found[0].MessageID)
	require.True(t, found[0].Exposed)
}
