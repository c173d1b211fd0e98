package pgtail_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// A database without traffic beside a busy one: the server need not keep the log of the other.
func TestTail_keeps_no_log_of_other_databases(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), &broker{}
	follower := w.tail()
	follower.LookForRetained(50 * time.Millisecond)
	f := w.start(b, forwarder.Config{Tail: follower})
	w.follows(f)
	busy := w.otherDatabase()
	_, err := busy.ExecContext(t.Context(), "CREATE TABLE busy (n integer, filler text)")
	require.NoError(t, err)
	const megabytes = 1 << 20
	for range 20 { // 5 MB each
		_, err = busy.ExecContext(t.Context(), "INSERT INTO busy SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) n")
		require.NoError(t, err)
	}
	w.eventually(func() bool {
		w.Exec(t, "CHECKPOINT") // the server notes which transactions run, as it does every 15 s
		return w.recorder.value(metrics.LogRetained) < 20*megabytes
	}, "the log of the other database is not kept")
	require.Zero(t, f.log.count("cannot"))
	f.stop(t)
	require.Zero(t, w.recorder.value(metrics.LogRetained))
}

// It runs alone: the other tests write log, too, and would wait for its transaction to make their slots.
func TestTail_gives_its_slot_up_when_the_server_keeps_too_much_log(t *testing.T) { //nolint:paralleltest // see above
	w, b := newWorld(t), &broker{}
	follower := w.tail(func(c *pgtail.Config) { c.MaxRetained = 4 << 20 })
	follower.LookForRetained(20 * time.Millisecond)
	f := w.start(b, forwarder.Config{Tail: follower})
	w.follows(f)

	open, err := w.DB.BeginTx(t.Context(), nil) // the server keeps the log from here on
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(t.Context(), "CREATE TABLE mine AS SELECT 1 AS n")
	require.NoError(t, err)
	w.eventually(func() bool {
		w.Exec(t, "CREATE TABLE IF NOT EXISTS filler (filler text)")
		w.Exec(t, "INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 2000) n")
		return f.log.count("MaxRetained") == 1
	}, "the slot is given up")
	w.eventually(func() bool { return w.slots() == 0 }, "the slot is gone")
	m := keyed("after", "a")
	w.publish("orders", m)
	w.eventually(func() bool { f.Running(); return b.has("after") }, "the message is found by polling")
	f.stop(t)
}

// otherDatabase returns a handle on another database of the same server.
func (w *world) otherDatabase() *sql.DB {
	w.Helper()
	name := fmt.Sprintf("other_%d_%d", os.Getpid(), time.Now().UnixNano())
	w.Exec(w.T, "CREATE DATABASE "+name)
	u, err := url.Parse(w.DSN)
	require.NoError(w, err)
	u.Path, u.RawQuery = "/"+name, "sslmode=disable"
	db, err := sql.Open("postgres", u.String())
	require.NoError(w, err)
	w.Cleanup(func() {
		_ = db.Close()
		_, _ = w.DB.Exec("DROP DATABASE " + name) //nolint:noctx // the test's context is over
	})
	return db
}
