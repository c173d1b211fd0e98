package drain_test

import (
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/enginetest"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// shuttingDown is what a server says that shuts down.
var shuttingDown = map[postbox.Dialect]error{
	postbox.PostgreSQL: &pq.Error{Code: "57P01", Message: "Verbindung wird abgebrochen"},
	postbox.MySQL:      &mysql.MySQLError{Number: 1053, Message: "Server wird heruntergefahren"},
	postbox.SQLite:     driver.ErrBadConn, // there is no server
}

// stopping is a drainer that was told to stop, and cannot store the outcome of a message, whose
// handler has returned.
type stopping struct {
	*running

	log     *enginetest.Journal
	handler *recorder
}

// stopsIn runs a drainer on this handle, which is told to stop while it handles a message. Then
// broken is called, and the handler returns this error.
func (b *bench) stopsIn(db *sql.DB, settings drain.Config, fail error, broken func()) stopping {
	b.T.Helper()
	b.Append(b.Database.DB, draft("first", "k"), draft("behind", "k"))
	entered, proceed := make(chan struct{}), make(chan struct{})
	s := stopping{handler: &recorder{do: func(*spool.Message) error {
		close(entered)
		<-proceed
		return fail
	}}}
	settings.BatchSize = 1
	s.running, s.log = b.runOn(db, s.handler, settings)
	signal(b.T, entered, "the handler is called")
	b.Eventually(func() bool { return b.held("one") == lanes }, "it has all lanes")
	s.cancel()
	b.Eventually(func() bool { return b.held("one") == 1 }, "it hands back the other lanes")
	broken()
	close(proceed)
	return s
}

// triedTwice waits until a drainer that stops has tried in vain to store outcomes.
func (s stopping) triedTwice(b *bench) {
	b.T.Helper()
	b.Eventually(func() bool { return s.log.Said("and goes on trying") == 1 && s.log.Said("Postbox is blocked: ") > 0 }, "it tries again")
}

// The database of a drainer that stops is away for a while: it was restarted, or connections were
// cut. The drainer stores the outcome when the database is back, so the next holder does not handle
// the message again. Also covers G2 and G3.
func TestDrainer_G12_records_an_outcome_after_an_outage_of_its_database(t *testing.T) {
	t.Parallel()
	for _, c := range lockedCases {
		if c.start { // such a message has no outcome
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, database *testdb.Database) {
				b := newBench(t, database)
				settings := config("one")
				settings.Close = patience
				if c.set != nil {
					c.set(&settings)
				}
				db, gate := database.OpenGated(t)
				s := b.stopsIn(db, settings, c.fail, func() { gate.ShutWith(shuttingDown[database.Dialect]) })
				s.triedTwice(b)
				gate.Open()
				s.stop(t)
				require.Empty(t, unrecorded(s.log))
				require.Equal(t, 1, s.handler.tried("first"))
				require.Zero(t, b.held("one"), "all lanes are free")
				require.Equal(t, c.dead, b.Dead())

				heir := &recorder{}
				b.start(database.DB, heir, config("two"))
				b.Eventually(func() bool { return b.Pending() == 0 }, "the next holder goes on")
				require.Equal(t, c.tried-1, heir.tried("first"))
				require.Equal(t, 1, heir.tried("behind"))
			})
		})
	}
}

// The database does not come back before the time for the stop is over.
func TestDrainer_G12_stops_in_time_while_its_database_is_away(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		b.Append(database.DB, draft("first", ""))
		db, gate := database.OpenGated(t)
		settings := config("one")
		settings.Close = time.Millisecond // no handler runs any more; storing outcomes has two seconds at least
		r, log := b.runOn(db, &recorder{do: func(*spool.Message) error {
			gate.Shut()
			return nil
		}}, settings)
		b.Eventually(func() bool { return log.Said("and goes on trying") == 1 }, "it cannot store the outcome")
		r.stop(t)
		require.Equal(t, []any{1}, unrecorded(log), "the log says how many are handled again")
		require.Equal(t, 1, log.Said("and goes on trying"), "it says once what the reason is")
		require.Equal(t, 1, b.Pending())
	})
}

// The user has closed the pool, so that nothing works any more, however long the drainer tries.
func TestDrainer_G12_a_stop_does_not_wait_for_a_pool_that_is_closed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		settings := config("one")
		settings.Close = patience
		db := database.Open(t)
		s := b.stopsIn(db, settings, nil, func() { require.NoError(t, db.Close()) })
		s.stop(t)
		require.Equal(t, []any{1}, unrecorded(s.log))
		require.Zero(t, s.log.Said("and goes on trying"))
	})
}

// While a drainer that stops cannot reach its database, its lease ends, and another process takes
// the lane and handles the message. When the database is back, the first drainer changes neither
// the message nor the lane. Also covers G12.
func TestDrainer_G6_a_stop_after_an_outage_settles_nothing_of_another_holder(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database)
		settings := config("one")
		settings.Close = patience
		db, gate := database.OpenGated(t)
		s := b.stopsIn(db, settings, postbox.Permanent(errTest), gate.Shut)
		s.triedTwice(b)

		database.Exec(t, "UPDATE postbox_members SET expires_at = 0 WHERE holder = 'one'")
		heir := newBlocker([]spool.Draft{draft("first", ""), draft("behind", "")})
		later := config("two")
		later.BatchSize = 1
		b.start(database.Open(t), heir, later)
		defer heir.letGo()
		require.Equal(t, "first", <-heir.entered)
		gate.Open()
		s.stop(t)
		require.Zero(t, b.Dead())
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages WHERE attempts > 0"))
		require.Equal(t, lanes, b.held("two"))

		heir.letGo()
		b.Eventually(func() bool { return b.Pending() == 0 }, "the other process goes on")
		require.Equal(t, []string{"first", "behind"}, heir.ids())
		require.Zero(t, b.Dead())
	})
}

// The database has refused to remove a message that is done, as it does after a conflict. A drainer
// that stops tries again before it hands back the lane. Also covers G2.
func TestDrainer_G12_records_an_outcome_that_was_refused_before_it_stops(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		for _, kind := range refusals[database.Dialect] {
			t.Run(string(kind), func(t *testing.T) {
				b := newBench(t, database)
				end := b.refuse(kind)
				b.Append(database.DB, draft("bad", "k"))
				settings := config("one")
				settings.Close = patience
				handler := &recorder{}
				r, log := b.runOn(database.DB, handler, settings)
				b.Eventually(func() bool { return log.Said(toldOfSetbacks) == 1 }, "it is refused")
				r.cancel()
				b.Eventually(func() bool { return b.held("one") <= 1 }, "it hands back the other lanes")
				end()
				r.stop(t)
				require.Zero(t, b.Pending())
				require.Empty(t, unrecorded(log))
				require.Equal(t, 1, handler.tried("bad"))
			})
		}
	})
}
