package drain_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const toldOfUnrecorded = "could not record the outcomes"

func (b *bench) runLogged(handler drain.Handler, config drain.Config) (*running, *enginetest.Journal) {
	b.T.Helper()
	return b.runOn(b.Database.DB, handler, config)
}

func (b *bench) runOn(db *sql.DB, handler drain.Handler, config drain.Config) (*running, *enginetest.Journal) {
	b.T.Helper()
	log := enginetest.NewJournal()
	return b.run(drain.New(db, spool.New(b.Statements, b.Spool.Name()), handler, config, log)), log
}

// A drainer stops while another transaction has locked the row of a message whose handler is
// running. The drainer keeps that lane, renews its lease, and hands back the others. When the lock
// is gone, it stores the outcome, so the next holder does not handle the message again. Also covers
// G2 and G3.
func TestDrainer_G12_records_the_outcome_of_a_locked_row_before_it_stops(t *testing.T) {
	t.Parallel()
	for _, c := range lockedCases {
		if c.start { // such a message has no outcome
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				b.Append(database.DB, draft("locked", "k"), draft("behind", "k"))
				entered, proceed := make(chan struct{}), make(chan struct{})
				handler := &recorder{do: func(*spool.Message) error {
					close(entered)
					<-proceed
					return c.fail
				}}
				settings := config("one")
				settings.Close, settings.BatchSize, settings.Lease = patience, 1, patience
				if c.set != nil {
					c.set(&settings)
				}
				r, log := b.runLogged(handler, settings)
				<-entered
				unlock := b.lockRow()
				r.cancel()
				b.Eventually(func() bool { return b.held("one") == 1 }, "it stops, and keeps this lane alone")
				close(proceed)
				b.Eventually(func() bool { return log.Said("Postbox waits for a lock") == 1 }, "it tries a second time")
				require.Equal(t, 1, b.held("one"))
				expiry := func() int {
					return database.Count(t, "SELECT MAX(expires_at) FROM postbox_members WHERE holder = 'one'")
				}
				before := expiry()
				b.Eventually(func() bool { return expiry() > before }, "it renews the lease")
				began := time.Now()
				unlock()
				r.stop(t)
				require.Less(t, time.Since(began), patience/2, "it does not wait for the end of its time")
				require.Zero(t, b.held("one"), "all lanes are free")
				require.Zero(t, log.Said(toldOfUnrecorded))
				require.Equal(t, c.dead, b.Dead())

				attempts := -1
				heir := &recorder{do: func(m *spool.Message) error {
					if m.MessageID == "locked" {
						attempts = m.Attempts
					}
					return nil
				}}
				next := b.start(database.DB, heir, config("two"))
				b.Eventually(func() bool { return b.Pending() == 0 }, "the next holder goes on")
				next.stop(t)
				if c.tried == 1 {
					require.Equal(t, []string{"behind"}, heir.ids())
					return
				}
				require.Equal(t, []string{"locked", "behind"}, heir.ids())
				require.Equal(t, 1, attempts, "the failure counts")
			})
		})
	}
}

// unrecorded returns the numbers of messages in the lines about outcomes that were not recorded.
func unrecorded(log *enginetest.Journal) (numbers []any) {
	for _, line := range log.At(watermill.ErrorLogLevel) {
		if strings.Contains(line.Msg, toldOfUnrecorded) {
			numbers = append(numbers, line.Fields["messages"])
		}
	}
	return numbers
}
