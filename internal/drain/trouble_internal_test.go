package drain

import (
	"context"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/schedule"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

func TestDrainer_doubles_its_pauses_while_its_steps_fail(t *testing.T) {
	t.Parallel()
	statements, err := dialect.For(dialect.SQLite, "", "", "")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		renewAt time.Time
		seconds []float64
	}{
		"in a read":      {time.Now().Add(time.Hour), []float64{1, 2, 4, 8, 10, 10, 10, 10, 10, 10, 10, 10}},
		"in the renewal": {time.Time{}, []float64{1, 2, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger := watermill.NewCaptureLogger()
			d := newIdleDrainer(&core{
				spool: spool.New(statements, "outbox"), logger: logger, scheduler: schedule.New(1, nil), pace: pace{renewAt: c.renewAt},
				config: Config{Times: Times{PollMin: time.Second, PollMax: 10 * time.Second, Renew: 5 * time.Second}},
			})
			for n, want := range c.seconds {
				d.stepFailed(spool.ErrLost)
				require.InDelta(t, want, time.Until(d.pace.at).Round(time.Second).Seconds(), 0.1)
				told := 0
				if n+1 >= conflictsUntilLogged {
					told = 1
				}
				require.Len(t, logger.Captured()[watermill.ErrorLogLevel], told)
			}
			d.stepSucceeded()
			require.Len(t, logger.Captured()[watermill.InfoLogLevel], 1)
			require.Equal(t, trouble{}, d.trouble)
		})
	}
}

// While the steps fail, no messages are read, and none can try whether a topic is back.
func TestDrainer_tells_circuits_while_its_steps_fail(t *testing.T) {
	t.Parallel()
	statements, err := dialect.For(dialect.SQLite, "", "", "")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		circuits := circuit.New(circuit.Config{FailuresInRow: 1, ProbeMin: time.Second, ProbeMax: time.Minute}, func() {})
		defer circuits.Stop()
		d := newIdleDrainer(&core{
			spool: spool.New(statements, "outbox"), logger: watermill.NopLogger{}, scheduler: schedule.New(1, nil),
			config: Config{Times: Times{PollMin: time.Second, PollMax: time.Second, Renew: time.Second}, Hooks: Hooks{Circuits: func() *circuit.Circuits { return circuits }}},
		})
		began := time.Now()
		circuits.Away("topic", circuit.Call{})
		for range 1000 {
			d.stepFailed(spool.ErrLost)
			time.Sleep(d.trouble.pause) //nolint:forbidigo // the time of a synctest bubble
		}
		require.Equal(t, map[string]time.Time{"topic": began}, circuits.Outages())
		time.Sleep(time.Hour) //nolint:forbidigo // the time of a synctest bubble
		synctest.Wait()
		require.Empty(t, circuits.Outages())
	})
}

// What is wrong is said at once and by its name, and a conflict when it lasts. Whatever it is, the
// leases are renewed in time.
func TestDrainer_logs_why_its_steps_fail(t *testing.T) {
	t.Parallel()
	statements, err := dialect.For(dialect.PostgreSQL, "", "", "")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		err        error
		steps      int // after which it is said
		begin, end string
	}{
		"a conflict":        {&pq.Error{Code: "40001"}, conflictsUntilLogged, "Postbox is blocked by conflicts with other transactions", "Postbox works again"},
		"no permission":     {&pq.Error{Code: "42501"}, 1, "Postbox is blocked by an error of its database", "Postbox works again"},
		"no table":          {&pq.Error{Code: "42P01"}, 1, "Postbox is blocked by an error of its database", "Postbox works again"},
		"read-only":         {&pq.Error{Code: "25006"}, 1, "Postbox cannot write to its database", "Postbox works again"},
		"statement_timeout": {&pq.Error{Code: "57014"}, 1, "Postbox could not finish a statement", "Postbox works again"},
		"a shutdown":        {&pq.Error{Code: "57P01"}, 1, "Postbox cannot reach its database", "Postbox reaches its database again"},
		"a pooler refuses": {
			&pq.Error{Severity: "FATAL", Code: "08P01"}, 1,
			"Postbox cannot reach its database (" + dialect.PoolerHint + ")", "Postbox reaches its database again",
		},
		"a pooler exchanges connections": {
			&pq.Error{Severity: "ERROR", Code: "26000"}, 1,
			"Postbox's statements fail (" + dialect.PoolerHint + ")", "Postbox works again",
		},
		"no connection": {driver.ErrBadConn, 1, "Postbox cannot reach its database", "Postbox reaches its database again"},
		"no answer":     {context.DeadlineExceeded, 1, "Postbox cannot reach its database", "Postbox reaches its database again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger := watermill.NewCaptureLogger()
			d := newIdleDrainer(&core{
				spool: spool.New(statements, "outbox"), logger: logger, scheduler: schedule.New(1, nil), pace: pace{renewAt: time.Now().Add(time.Minute)},
				config: Config{Times: Times{PollMin: time.Hour, PollMax: time.Hour, Renew: time.Minute}},
			})
			for n := range 2 * conflictsUntilLogged {
				d.stepFailed(c.err)
				require.LessOrEqual(t, d.wait(), d.config.Renew)
				logged := logger.Captured()[watermill.ErrorLogLevel]
				require.Equal(t, n+1 >= c.steps, len(logged) == 1)
				if len(logged) > 0 {
					require.Contains(t, logged[0].Msg, c.begin)
				}
			}
			require.Empty(t, logger.Captured()[watermill.InfoLogLevel])
			d.stepSucceeded()
			require.Equal(t, c.end, logger.Captured()[watermill.InfoLogLevel][0].Msg)
		})
	}
}

// A drainer that is hindered pauses for longer than its leases last. It renews them in time all the
// same, and what conflicts is tried at the end of each pause and not before, whatever wakes the
// drainer.
func TestDrainer_G6_renews_its_leases_while_its_steps_fail(t *testing.T) {
	t.Parallel()
	testdb.EachServer(t, func(t *testing.T, database *testdb.Database) {
		d, end := newStepped(database.DB, newOutbox(t, database), 10)
		defer end()
		d.configured.PollMin, d.configured.PollMax = time.Hour, time.Hour
		renewed := func() int { return database.Count(t, "SELECT expires_at FROM postbox_members") }
		step := func() time.Duration {
			t.Helper()
			d.step(t.Context())
			return d.wait()
		}
		require.NoError(t, d.tryOpen(t.Context()))
		database.Exec(t, "UPDATE postbox_lanes SET suspect = 1")
		step() // reads the lane, and would clear its mark in the next step
		endMark := conflictOn(t, database, "UPDATE ON postbox_lanes", "OLD.suspect <> NEW.suspect")
		require.LessOrEqual(t, step(), d.config.Renew, "it wakes to renew its lease")
		require.Equal(t, 1, d.trouble.steps)
		for range 3 {
			before := renewed()
			d.pace.renewAt = time.Now()
			require.Zero(t, d.wait())
			rest := step()
			require.Greater(t, renewed(), before, "it is renewed")
			require.Greater(t, rest, d.config.Renew/2, "and the drainer pauses until the next time")
			require.Equal(t, 1, d.trouble.steps, "nothing else is tried")
		}

		endRenewal := conflictOn(t, database, "UPDATE ON postbox_members", "1 = 1")
		for n := range 3 {
			d.pace.renewAt = time.Now()
			rest := step()
			require.Equal(t, n+2, d.trouble.steps, "the renewal conflicts")
			require.Greater(t, rest, d.config.Renew/2)
			require.LessOrEqual(t, rest, d.config.Renew, "it is tried again before the lease ends")
			require.Greater(t, step(), d.config.Renew/2, "and not when something wakes the drainer")
			require.Equal(t, n+2, d.trouble.steps)
			d.trouble.until = time.Now() // the pause is over
		}

		endMark()
		endRenewal()
		before := renewed()
		step()
		require.Greater(t, renewed(), before)
		require.Equal(t, trouble{}, d.trouble, "it goes on")
		require.Zero(t, database.Count(t, "SELECT suspect FROM postbox_lanes"))
	})
}

// newIdleDrainer returns a drainer without a database.
func newIdleDrainer(shared *core) *Drainer {
	shared.pace.slowStart.Now = time.Now
	return &Drainer{core: shared, settle: newSettler(shared), lease: &lease{core: shared}}
}
