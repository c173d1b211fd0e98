package dashboard_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/dashboard"
	"github.com/postbox-go/watermill-postbox/dashboard/internal/dashboardtest"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// The database goes away while pages are open, and comes back.
func TestDashboard_says_that_the_database_does_not_answer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Die("orders", "card declined", dashboardtest.Message("d-1", "", "{}"))
		logger := watermill.NewCaptureLogger()
		gate := b.behindGate(t, database, logger)
		pages := []string{"", "queue?outbox=outbox", "messages", messageAt("message", 1), "letters", letterAt("letter", 1), "keys", "bulk?do=requeue"}

		b.page("letters")
		gate.close()
		b.post("pause?outbox=outbox", nil) // what was counted before an action is not shown after it
		for _, page := range pages {
			a := b.get(page)
			require.Equal(t, http.StatusServiceUnavailable, a.status, page)
			require.Contains(t, a.text(), "The database does not answer", page)
			require.Contains(t, a.body, `href="letters"`, "the layout stays")
		}
		require.Len(t, logger.Captured()[watermill.ErrorLogLevel], 1, "it is logged once")
		a := b.post("bulk-run?do=requeue", nil)
		require.Contains(t, a.text(), "Not everything is done")
		gate.reopen()
		b.page("letters")
		require.Len(t, b.letters(admin.Filter{}), 1)
	})
}

// An operator must know what has become of a pressed button. The page must not promise to load
// again: its address takes no request but the action.
func TestDashboard_says_that_an_action_may_have_been_done_while_the_database_does_not_answer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Die("orders", "card declined", dashboardtest.Message("d-1", "", "{}"))
		gate := b.behindGate(t, database, nil)

		gate.close()
		asked := map[string]answer{}
		for action, back := range map[string]string{
			"pause?outbox=outbox": "Outbox outbox", letterAt("requeue", 1): "Dead letter 1", messageAt("run-now", 1): "Message 1",
			"pause-key?outbox=outbox&key=a": "Keys and topics",
		} {
			a := b.post(action, nil)
			require.Equal(t, http.StatusServiceUnavailable, a.status, action)
			require.Contains(t, a.text(), "It is not known whether the action was done", action)
			require.Contains(t, a.text(), "This page neither repeats the action nor loads itself again.", action)
			require.NotContains(t, a.text(), "loads again by itself", action)
			require.NotContains(t, a.body, "data-live", "the script loads such a page again: %s", action)
			require.NotEmpty(t, b.linkTo(a, back), action)
			require.Equal(t, "audit", b.linkTo(a, "audit log"), action)
			asked[action] = a
		}
		read := b.get("queue?outbox=outbox")
		require.Contains(t, read.text(), "This page loads again by itself.")
		require.Contains(t, read.body, `data-live="problem 503"`)

		gate.reopen()
		require.NotContains(t, b.page(b.linkTo(asked["pause?outbox=outbox"], "Outbox outbox")).text(), "An operator paused it", "the action was not done")
		require.Contains(t, b.page(b.linkTo(asked[letterAt("requeue", 1)], "Dead letter 1")).text(), "card declined")
		b.page(b.linkTo(asked["pause-key?outbox=outbox&key=a"], "Keys and topics"))
		b.do(letterAt("requeue", 1), nil)
		again := b.post(letterAt("requeue", 1), nil)
		require.Equal(t, http.StatusNotFound, again.status)
		require.NotContains(t, again.body, "data-live")
		require.NotEmpty(t, b.linkTo(again, "Dead letter 1"))
		require.Len(t, b.messages(admin.Filter{}), 1)
	})
}

// What an action looks up before it begins can fail as well.
func TestDashboard_says_that_an_action_did_not_begin_while_the_database_does_not_answer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		gate := b.behindGate(t, database, nil)
		gate.close()
		a := b.post("bulk-run?do=replay&status=DONE&outbox=outbox", nil)
		require.Equal(t, http.StatusServiceUnavailable, a.status)
		require.Contains(t, a.text(), "The action was not done")
		require.Contains(t, a.text(), "The action did not begin")
		require.NotContains(t, a.text(), "may have been done")
	})
}

// behindGate makes a dashboard that reaches the database through a gate.
func (b *bench) behindGate(t *testing.T, database *testdb.Database, logger watermill.LoggerAdapter) *gate {
	t.Helper()
	way := &gate{open: database.DB.Driver().Open, dsn: database.DSN}
	db := sql.OpenDB(way)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	db.SetMaxIdleConns(0) // each page connects
	operator, err := admin.New(database.On(db), admin.Config{}, nil)
	require.NoError(t, err)
	b.board, err = dashboard.New(operator, dashboard.Config{Authorise: dashboard.LoopbackOnly}, logger)
	require.NoError(t, err)
	return way
}

// gate is a way to a database that can be closed.
type gate struct {
	open   func(dsn string) (driver.Conn, error)
	dsn    string
	mu     sync.Mutex
	closed bool
}

func (g *gate) Connect(context.Context) (driver.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, errAway
	}
	return g.open(g.dsn)
}

func (g *gate) Driver() driver.Driver { return nil }

func (g *gate) close()  { g.set(true) }
func (g *gate) reopen() { g.set(false) }

func (g *gate) set(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
}

// hung is a database that does not even notice the end of a context. It counts who waits for it.
type hung struct {
	until chan struct{}
	wait  *atomic.Int32
}

func (h hung) Connect(context.Context) (driver.Conn, error) {
	h.wait.Add(1)
	<-h.until
	return nil, errAway
}

func (h hung) Driver() driver.Driver { return nil }

var errAway = driver.ErrBadConn

func TestDashboard_answers_in_time_when_the_driver_does_not_return(t *testing.T) {
	t.Parallel()
	until := make(chan struct{})
	var waiting atomic.Int32
	db := sql.OpenDB(hung{until, &waiting})
	operator, err := admin.New(postbox.Database{DB: db, Dialect: postbox.PostgreSQL}, admin.Config{}, nil)
	require.NoError(t, err)
	board, err := dashboard.New(operator, dashboard.Config{Authorise: dashboard.LoopbackOnly, Timeout: 20 * time.Millisecond}, nil)
	require.NoError(t, err)
	b := &bench{Shop: &dashboardtest.Shop{TB: t}, board: board, prefix: "/", host: "localhost", remote: "127.0.0.1:1"}
	require.Contains(t, b.get("letters").text(), "did not answer in time")
	// A page whose time is over before it asks the driver holds up no other.
	for deadline := time.Now().Add(time.Minute); waiting.Load() < 8; {
		require.Equal(t, http.StatusServiceUnavailable, b.get("letters").status)
		require.True(t, time.Now().Before(deadline), "pages ask a database that answers none of them")
	}
	require.Contains(t, b.get("letters").text(), "all pages that may ask the database at a time wait for it")
	action := b.post("pause?outbox=outbox", nil)
	require.Contains(t, action.text(), "The action was not done")
	require.Contains(t, action.text(), "The action did not begin")
	close(until)
	require.NoError(t, db.Close())
	eventually(t, func() bool { return board.Idle() })
}

// A request that PostgreSQL would refuse is no sign of a database that is away, and must not be
// logged as one.
func TestDashboard_says_what_is_wrong_with_a_request(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, database *testdb.Database) {
		b := newBench(t, database, dashboard.Config{})
		b.Publish("orders", dashboardtest.Message("m-1", "customer-1", "{}"))
		logger := watermill.NewCaptureLogger()
		var err error
		b.board, err = dashboard.New(b.Admin, dashboard.Config{Authorise: dashboard.LoopbackOnly}, logger)
		require.NoError(t, err)
		for _, page := range []string{
			`letters?topic=a\x00`, `letters?consumer=a\xff`, `groups?topic=a\xff`, `messages?topic=a\x00`, `messages?status=DONE&topic=a\xff`, "messages?after=x",
			`audit?actor=a\x00`, `audit?action=a\xff`, `audit?outbox=a\xff`,
		} {
			a := b.get(page)
			require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", page, a.text())
		}
		a := b.post("pause-topic?outbox=outbox", url.Values{"topic": {"orders "}})
		require.Equal(t, http.StatusBadRequest, a.status, a.text())
		require.Contains(t, a.text(), "does not end with a space")
		require.Equal(t, http.StatusNotFound, b.get(`keys?outbox=a\x00`).status)
		require.Empty(t, logger.Captured()[watermill.ErrorLogLevel])
	})
}
