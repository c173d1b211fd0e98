package drain

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// lateWorld is a drainer that a test takes through its steps while transactions are open, and the
// order in which messages of each key became visible.
type lateWorld struct {
	*testing.T

	db      *sql.DB
	own     *spool.Spool
	d       *Drainer
	written int
	// Times of the test: when the transaction of a message began, when it was committed, when it
	// was handled.
	begun, commits, handled map[string]int
	clock                   int
}

func newLateWorld(t *testing.T, database *testdb.Database) *lateWorld {
	t.Helper()
	own := newOutbox(t, database)
	d, end := newStepped(database.DB, own, 20)
	t.Cleanup(end)
	d.configured.Workers, d.config.Workers = 0, 0
	require.NoError(t, d.tryOpen(t.Context()))
	return &lateWorld{
		T: t, db: database.DB, own: own, d: d,
		begun: map[string]int{}, handled: map[string]int{}, commits: map[string]int{},
	}
}

// write writes a message of a random key in a transaction that began at a time.
func (w *lateWorld) write(db spool.Executor, random *rand.Rand, begun int) string {
	w.written++
	id := fmt.Sprintf("%d %d", random.IntN(3), w.written)
	w.begun[id] = begun
	require.NoError(w, w.own.Append(w.Context(), db, spool.Run, []spool.Draft{{Topic: "orders", Key: id[:1], MessageID: id}}))
	return id
}

func (w *lateWorld) tick() int {
	w.clock++
	return w.clock
}

// step lets the drainer read, as if time had passed or not, and handles all that it hands out.
func (w *lateWorld) step(random *rand.Rand) {
	h := &w.d.reader.watermark
	w.d.pace.at, w.d.reader.sweeping.next = time.Time{}, time.Now().Add(time.Hour)
	if random.IntN(3) > 0 {
		h.setAt, h.askAt, h.markAt = time.Now().Add(-time.Hour), time.Time{}, time.Now().Add(-time.Hour)
	}
	w.d.step(w.Context())
	require.Empty(w, w.d.trouble.end)
	w.handle()
}

// handle handles all that the drainer hands out.
func (w *lateWorld) handle() {
	s := w.d.scheduler
	s.SetWorkers(1)
	for batch := s.TryTake(); len(batch) > 0; batch = s.TryTake() {
		for _, e := range batch {
			require.Zero(w, w.handled[e.Message.MessageID], "handled twice")
			w.handled[e.Message.MessageID] = w.tick()
		}
		s.Finish(batch, make([]spool.Outcome, len(batch)))
	}
}

// check compares each two messages of a key: where one was committed before the transaction of the
// other began, it is first.
func (w *lateWorld) check() {
	for a, committed := range w.commits {
		for b := range w.commits {
			if a[0] != b[0] || committed > w.begun[b] || w.handled[b] == 0 {
				continue
			}
			require.NotZero(w, w.handled[a], "%q is not handled, and %q is", a, b)
			require.Less(w, w.handled[a], w.handled[b], "%q was committed before %q began", a, b)
		}
	}
}

// lateOpen is a transaction of the test.
type lateOpen struct {
	tx    *sql.Tx
	begun int
	ids   []string
}

// Reads go beyond open transactions, whether they have written or not, and yet no message of a key
// overtakes one that was committed before its transaction began. Sweeps, which would find what is
// missed, are left out.
func TestDrainer_G3_order_among_transactions_that_end_at_any_time(t *testing.T) {
	t.Parallel()
	servers := []func(*testing.T) *testdb.Database{testdb.Postgres, testdb.MySQL}
	for run := range uint64(16) {
		t.Run(strconv.FormatUint(run, 10), func(t *testing.T) {
			t.Parallel()
			seed := run / 2
			w := newLateWorld(t, servers[run%2](t))
			random := rand.New(rand.NewPCG(seed, 20)) //nolint:gosec // a test repeats its numbers
			var open []*lateOpen
			w.d.reader.handler = leavesOut{topic: "left out"}
			for range 250 {
				w.writeLeftOut(open, random)
				switch at := random.IntN(len(open) + 1); {
				case random.IntN(2) == 0:
					w.step(random)
				case at == len(open) && len(open) < 4:
					open = append(open, w.open(random))
				case at == len(open) || random.IntN(3) == 0:
					begun := w.tick()
					w.commits[w.write(w.db, random, begun)] = w.tick()
				case random.IntN(2) == 0: //nolint:gocritic // each case is drawn by itself
					open[at].ids = append(open[at].ids, w.writeLate(open[at], random)...)
				default:
					w.end(open[at], random)
					open = append(open[:at], open[at+1:]...)
				}
			}
			for _, late := range open {
				w.end(late, random)
			}
			for range 5 {
				w.step(random)
			}
			w.check()
			require.Len(t, w.handled, len(w.commits), "all are handled")
		})
	}
}

func (w *lateWorld) open(random *rand.Rand) *lateOpen {
	// Under REPEATABLE READ, going back to a savepoint leaves gaps locked on MySQL, where others
	// insert.
	tx, err := w.db.BeginTx(w.Context(), &sql.TxOptions{Isolation: w.own.Statements.Isolation})
	require.NoError(w, err)
	late := &lateOpen{tx: tx, begun: w.tick()}
	if random.IntN(2) == 0 && w.own.Statements.Kind == dialect.PostgreSQL {
		w.exec(tx, "SELECT pg_current_xact_id()")
	}
	return late
}

// writeLate writes in an open transaction, also within a savepoint, to which it may go back.
func (w *lateWorld) writeLate(late *lateOpen, random *rand.Rand) []string {
	if random.IntN(3) > 0 {
		return []string{w.write(late.tx, random, late.begun)}
	}
	w.exec(late.tx, "SAVEPOINT s")
	id := w.write(late.tx, random, late.begun)
	if random.IntN(2) == 0 {
		w.exec(late.tx, "ROLLBACK TO SAVEPOINT s")
		return nil
	}
	w.exec(late.tx, "RELEASE SAVEPOINT s")
	return []string{id}
}

// writeLeftOut now and then writes a message that reads leave out, in one of the transactions or by
// itself. Only the marks tell of it.
func (w *lateWorld) writeLeftOut(open []*lateOpen, random *rand.Rand) {
	var db spool.Executor = w.db
	switch at := random.IntN(len(open) + 5); {
	case at < len(open):
		db = open[at].tx
	case at > len(open):
		return
	}
	require.NoError(w, w.own.Append(w.Context(), db, spool.Run, []spool.Draft{{Topic: "left out"}}))
}

// leavesOut is a handler of all topics but one.
type leavesOut struct {
	Handler

	topic string
}

func (l leavesOut) Excluded() []string { return []string{l.topic} }

func (w *lateWorld) end(late *lateOpen, random *rand.Rand) {
	if random.IntN(5) == 0 {
		require.NoError(w, late.tx.Rollback())
		return
	}
	require.NoError(w, late.tx.Commit())
	now := w.tick()
	for _, id := range late.ids {
		w.commits[id] = now
	}
}

func (w *lateWorld) exec(tx *sql.Tx, statement string) {
	_, err := tx.ExecContext(w.Context(), statement)
	require.NoError(w, err)
}

// pass lets so many messages of other keys go through.
func (w *lateWorld) pass(messages int) {
	const page = 20
	for range messages / page {
		drafts := make([]spool.Draft, page)
		for i := range drafts {
			w.written++
			drafts[i] = spool.Draft{Topic: "orders", MessageID: fmt.Sprintf("x %d", w.written)}
		}
		require.NoError(w, w.own.Append(w.Context(), w.db, spool.Run, drafts))
		w.stepOn()
	}
}

// stepOn is a step at its own time, but for the sweeps.
func (w *lateWorld) stepOn() {
	w.d.pace.at, w.d.reader.sweeping.next = time.Time{}, time.Now().Add(time.Hour)
	w.d.step(w.Context())
	w.handle()
}

// blocks is how many pages the next read touches.
func (w *lateWorld) blocks() int {
	w.stepOn()
	query := w.own.Statements.Fetch(func() dialect.FetchParams {
		params := w.d.reader.params(w.d.lanes.numbers(), 0)
		params.PerLane, params.Due = 20, 20
		return params
	}())
	var text string
	require.NoError(w, w.db.QueryRowContext(w.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query.Text, query.Args...).Scan(&text))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	require.NoError(w, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// As long as the transaction is open, PostgreSQL keeps the index entries of all that goes through.
// The more there were, the more pages each read touched: 10,000 messages made it 300 instead of 16.
func TestDrainer_G3_an_open_transaction_makes_no_read_more_expensive(t *testing.T) {
	t.Parallel()
	const messages, most = 10_000, 100
	opened := map[string]func(t *testing.T, w *lateWorld, database *testdb.Database) *sql.DB{
		"in the same database": func(_ *testing.T, w *lateWorld, _ *testdb.Database) *sql.DB { return w.db },
		"in another database of the server": func(t *testing.T, _ *lateWorld, database *testdb.Database) *sql.DB {
			name := fmt.Sprintf("t%d_%d", os.Getpid(), time.Now().UnixNano())
			database.Exec(t, "CREATE DATABASE "+name+" TEMPLATE template0")
			t.Cleanup(func() { _, _ = database.DB.Exec("DROP DATABASE " + name + " WITH (FORCE)") }) //nolint:noctx // the test's context is over
			u, err := url.Parse(database.DSN)
			require.NoError(t, err)
			u.Path, u.RawQuery = "/"+name, "sslmode=disable"
			other := &testdb.Database{Driver: database.Driver, DSN: u.String(), Dialect: database.Dialect}
			return other.Open(t)
		},
	}
	for name, where := range opened {
		for _, writes := range []bool{false, true} {
			if writes && name != "in the same database" {
				continue
			}
			t.Run(fmt.Sprintf("%s, with a message %t", name, writes), func(t *testing.T) {
				t.Parallel()
				database := testdb.Postgres(t)
				w := newLateWorld(t, database)
				tx, err := where(t, w, database).BeginTx(t.Context(), nil)
				require.NoError(t, err)
				w.exec(tx, "SELECT pg_current_xact_id()")
				if writes {
					w.commits[w.write(tx, rand.New(rand.NewPCG(1, 1)), 0)] = 0 //nolint:gosec // a number
				}
				w.pass(messages)
				require.Eventually(t, func() bool { return w.blocks() < most }, time.Minute, time.Millisecond,
					"the watermark moves on while the transaction is open")
				require.NoError(t, tx.Commit())
				require.Eventually(t, func() bool {
					w.stepOn()
					return len(w.handled) == messages+len(w.commits)
				}, time.Minute, time.Millisecond, "all are handled, the late one too")
			})
		}
	}
}

// On MariaDB an open snapshot keeps the index entries of all that goes through, which reads that
// began at 0 passed over, each time. What holds the watermark back is a transaction that has stored
// messages itself, and no other.
func TestDrainer_G3_open_snapshot_holds_back_no_watermark_on_mariadb(t *testing.T) {
	t.Parallel()
	const messages = 1000
	database := testdb.MySQL(t)
	if !database.IsMariaDB(t) {
		t.Skip("MariaDB is missing: MySQL has no watermark")
	}
	w := newLateWorld(t, database)
	hints := func() int64 {
		w.stepOn()
		hints := []int64{w.d.lanes.held[0].cursor, w.d.lanes.held[1].cursor}
		return slices.Min(hints)
	}
	w.pass(messages)
	require.Eventually(t, func() bool { return hints() > 0 }, time.Minute, time.Millisecond)

	snapshot, err := database.DB.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	require.NoError(t, err)
	w.exec(snapshot, "SELECT COUNT(*) FROM postbox_messages")
	w.pass(messages)
	newest := func() int64 {
		require.Eventually(t, func() bool { w.stepOn(); return len(w.handled) == w.written }, time.Minute, time.Millisecond)
		return w.d.reader.watermark.newest
	}
	last := newest()
	require.Eventually(t, func() bool { return hints() >= last }, time.Minute, time.Millisecond, "reads begin behind all that went through")
	require.NoError(t, snapshot.Rollback())

	writer, err := database.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	late := w.write(writer, rand.New(rand.NewPCG(1, 1)), 0) //nolint:gosec // a number
	w.pass(messages)
	settled := time.Now().Add(dialect.WriterGroups * 20 * time.Millisecond)
	require.Eventually(t, func() bool { return hints() > 0 && time.Now().After(settled) }, time.Minute, time.Millisecond)
	require.LessOrEqual(t, hints(), last, "what it has stored stands before all that went through meanwhile")
	require.NoError(t, writer.Commit())
	require.Eventually(t, func() bool { return hints() > last && w.handled[late] > 0 }, time.Minute, time.Millisecond)
	newest()
	require.Len(t, w.handled, 3*messages+1)
}
