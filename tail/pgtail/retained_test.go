package pgtail_test

import (
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
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
	busy := w.openAs(w.otherDatabase())
	_, err := busy.ExecContext(t.Context(), "CREATE TABLE busy (n integer, filler text)")
	require.NoError(t, err)
	const megabytes = 1 << 20
	for range 20 { // 5 MB each
		_, err = busy.ExecContext(t.Context(), "INSERT INTO busy SELECT n, repeat('x', 1000) FROM generate_series(1, 5000) n")
		require.NoError(t, err)
	}
	w.eventually(func() bool {
		w.Exec(t, "CHECKPOINT") // the server notes which transactions run, as it does every 15 s
		return w.recorder.value(instruments.LogRetained) < 20*megabytes
	}, "the log of the other database is not kept")
	require.Zero(t, f.log.count("cannot"))
	f.stop(t)
	require.Zero(t, w.recorder.value(instruments.LogRetained))
}

// It runs alone: the other tests would wait for its transaction to make their slots. Those of other
// processes write log, too, which counts, since the server keeps one log for all databases. So the
// limit is beyond what they write while the forwarder begins, which takes longer on a busy machine.
func TestTail_gives_its_slot_up_when_the_server_keeps_too_much_log(t *testing.T) { //nolint:paralleltest // see above
	w, b := newWorld(t), &broker{}
	follower := w.tail(func(c *pgtail.Config) { c.MaxRetained = 64 << 20 })
	follower.LookForRetained(20 * time.Millisecond)
	f := w.start(b, forwarder.Config{Tail: follower})
	w.follows(f)
	before := f.log.count("MaxRetained") // others may have written that much all the same, and the forwarder has begun again a minute later

	open, err := w.DB.BeginTx(t.Context(), nil) // the server keeps the log from here on
	require.NoError(t, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(t.Context(), "CREATE TABLE mine AS SELECT 1 AS n")
	require.NoError(t, err)
	w.eventually(func() bool {
		w.Exec(t, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 8000000))")
		return f.log.count("MaxRetained") > before
	}, "the slot is given up")
	w.eventually(func() bool { return w.slots() == 0 }, "the slot is gone")
	m := keyed("after", "a")
	w.publish("orders", m)
	w.eventually(func() bool { f.Running(); return b.has("after") }, "the message is found by polling")
	f.stop(t)
}

// otherDatabase makes another database on the same server, and returns its address.
func (w *world) otherDatabase() (dsn string) {
	w.Helper()
	name := fmt.Sprintf("other_%d_%d", os.Getpid(), time.Now().UnixNano())
	w.Exec(w.T, "CREATE DATABASE "+name)
	server := w.DB
	w.Cleanup(func() {
		_, _ = server.Exec("DROP DATABASE " + name + " WITH (FORCE)") //nolint:noctx // the test's context is over
	})
	u, err := url.Parse(w.DSN)
	require.NoError(w, err)
	u.Path, u.RawQuery = "/"+name, "sslmode=disable"
	return u.String()
}
