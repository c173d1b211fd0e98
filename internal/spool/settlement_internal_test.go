package spool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Many messages end at once, and the database refuses to write the failure of one. What was written of the others stays so, and the one is
// found in few transactions.
func TestSettlement_finds_the_message_that_is_refused_in_few_transactions(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		const done, failed, halvings = 4, counted - 4, 4 // of 16 messages
		c := newCounter(t, database)
		change := "DELETE ON postbox_messages" // a failed message moves to another table
		if database.Dialect != postbox.PostgreSQL {
			change = "UPDATE ON postbox_messages"
		}
		end := conflictOn(t, database, change, "OLD.message_id = '13'")
		d := c.d
		d.config.Retry = postbox.RetryProfile{}.WithDefaults(3)
		d.scheduler.limit(counted)
		d.scheduler.load(c.suspects)
		for n := range counted {
			outcomes := one(Retry)
			if n < done {
				outcomes = one(Done)
			}
			outcomes[0].Err, outcomes[0].After = errNotAll, time.Hour
			d.scheduler.finish(d.scheduler.take(), outcomes)
		}
		d.unsettled = d.scheduler.takeFinished()
		require.NoError(t, d.settleUnsettled(t.Context()))

		waiting := func() int {
			return database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE state = 2 AND attempts = 1")
		}
		require.Equal(t, failed, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "what is done is gone")
		require.Equal(t, failed-1, waiting())
		if database.Dialect == postbox.PostgreSQL {
			require.LessOrEqual(t, database.Count(t, "SELECT COUNT(DISTINCT xmin::text) FROM postbox_waiting"), halvings, "transactions")
		}
		require.Len(t, d.setbacks.known, 1, "nothing else had a setback")
		require.Len(t, d.setbacks.resting, 1)
		require.Equal(t, "13", d.setbacks.resting[0].message.MessageID)
		all, _ := d.scheduler.size()
		require.Equal(t, 1, all)
		require.False(t, d.renewalDue(), "no lane was lost")

		end()
		d.unsettled = d.setbacks.resting
		d.setbacks.resting = nil
		require.NoError(t, d.settleUnsettled(t.Context()))
		require.Equal(t, failed, waiting())
		require.Empty(t, d.unsettled)
	})
}
