package drain

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/keyhash"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Messages that reads leave out are read over once: a read costs the same however many of them
// wait, also if no other message has come after them.
func TestDrainer_G8_reads_do_not_grow_with_the_messages_that_they_leave_out(t *testing.T) {
	t.Parallel()
	const page, waiting = 20 * dialect.Lanes, 600
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		own := newOutbox(t, database)
		id, err := own.Open(t.Context(), database.DB)
		require.NoError(t, err)
		store := func(n int) (last int64) {
			t.Helper()
			drafts := make([]spool.Draft, n)
			for i := range drafts {
				drafts[i] = spool.Draft{Topic: "slow", Key: "one", MessageID: strconv.Itoa(i)}
			}
			for part := drafts; len(part) > 0; part = part[min(100, len(part)):] {
				require.NoError(t, own.Append(t.Context(), database.DB, spool.Run, part[:min(100, len(part))]))
			}
			return int64(database.Count(t, "SELECT MAX(id) FROM postbox_messages"))
		}
		last := store(waiting)
		first := strconv.Itoa(database.Count(t, "SELECT MIN(id) FROM postbox_messages"))
		change := func(statement string) { database.Exec(t, database.Bind(statement), id) }
		for _, test := range []struct {
			name       string
			begin, end func(d *Drainer)
		}{
			{"a limited topic", func(d *Drainer) {
				limit := postbox.Limits{Topics: map[string]postbox.Limit{"slow": {PerSecond: 0.001}}}
				d.configured.Limits, d.config.Limits = limit, limit
				d.scheduler.SetLimits(d.config.Limits)
			}, func(*Drainer) {}},
			{"a paused topic", func(*Drainer) {
				change("INSERT INTO postbox_topic_pauses (spool, topic, paused_at) VALUES (?, 'slow', 0)")
			}, func(*Drainer) { change("DELETE FROM postbox_topic_pauses WHERE spool = ?") }},
			{"a key behind a message that failed", func(*Drainer) {
				change("UPDATE postbox_messages SET state = 2, available_at = 4000000000000000 WHERE spool = ? AND id = " + first)
				database.MoveWaiting(t)
			}, func(*Drainer) {}},
		} {
			d, end := newStepped(database.DB, own, page)
			d.configured.Workers, d.config.Workers = 0, 0
			require.NoError(t, d.tryOpen(t.Context()))
			test.begin(d)
			change("UPDATE postbox_spools SET version = version + 1 WHERE id = ?")
			behind := func() bool {
				d.pace.at, d.reader.sweeping.next = time.Time{}, time.Now().Add(time.Hour)
				d.step(t.Context())
				require.Empty(t, d.trouble.end)
				l := d.lanes.held[spool.LaneOf(keyhash.Of("one"))]
				return l != nil && l.cursor >= last
			}
			require.Eventually(t, behind, time.Minute, time.Millisecond, test.name)
			last = store(100)
			require.Eventually(t, behind, time.Minute, time.Millisecond, "%s: more of them", test.name)
			if database.Dialect != postbox.SQLite { // it does not tell how much it reads
				query := own.Statements.Fetch(d.reader.params(d.lanes.numbers(), page))
				require.LessOrEqual(t, enginetest.Reads(t, database, query), 10*page, test.name)
				d.lanes.rewind()
				query = own.Statements.Fetch(d.reader.params(d.lanes.numbers(), page))
				require.Greater(t, enginetest.Reads(t, database, query), waiting, "%s: a read from the beginning does grow", test.name)
			}
			test.end(d)
			end()
		}
	})
}
