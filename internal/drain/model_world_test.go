package drain

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/internal/circuit"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// model is a database for many runs, one after the other.
type model struct {
	db         *testdb.Database
	statements *dialect.Statements
	prepared   *spool.Prepared // the processes share them: preparing takes longer than running
	most, runs int
	failed     bool
	outbox     bool // all handlers publish
	tailing    bool // processes follow a log
}

func newModel(t *testing.T, database *testdb.Database) *model {
	t.Helper()
	statements, err := spool.StatementsIn(database.Postbox())
	require.NoError(t, err)
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (message_id VARCHAR(40) NOT NULL)")
	m := &model{db: database, statements: statements, prepared: spool.NewPrepared(database.DB)}
	t.Cleanup(m.prepared.Close)
	return m
}

// newModelInMemory returns a model on SQLite.
func newModelInMemory(t *testing.T) *model {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	db.SetMaxOpenConns(1) // with the connection the database would end
	t.Cleanup(func() { _ = db.Close() })
	return newModel(t, &testdb.Database{DB: db, Dialect: postbox.SQLite})
}

// world is one run.
type world struct {
	*model
	*rapid.T

	ctx       context.Context //nolint:containedctx // of the run
	spool     *spool.Spool
	id        int64
	settings  Config
	effective bool         // handlers have transactions, and so effects
	broker    *modelBroker // or they publish

	clock     int64 // counts what happens, for causality
	messages  []*modelMessage
	late      []*lateAppend
	lock      *modelLock
	processes []*modelProcess
	circuits  []*circuit.Circuits // of all processes there ever were
	ghosts    []string            // crashed processes whose leases have not ended
	spawned   int
	abandoned []*modelRun
	holders   map[[2]int64]string // who has ever had a lane under a token
	tokens    map[int]int64
	paused    bool
	keys      map[string]bool // paused ones
	topics    map[string]bool // paused ones
	version   int64
	excluding bool // some process has ever left out a topic, or a topic was paused
	wal       *modelLog
}

var modelTables = []string{"messages", "lanes", "members", "dead_letters", "failures", "history", "pauses", "topic_pauses", "chores", "spools"}

func (m *model) newWorld(rt *rapid.T) *world {
	m.runs++
	w := &world{
		model: m, T: rt, ctx: context.Background(),
		holders: map[[2]int64]string{}, tokens: map[int]int64{}, keys: map[string]bool{}, topics: map[string]bool{},
	}
	for _, table := range modelTables {
		w.exec("DELETE FROM " + m.statements.Names.Table(table))
	}
	w.exec("DELETE FROM effects")
	page := rapid.IntRange(1, 4).Draw(rt, "page size")
	w.settings = Config{
		Identity: Identity{Process: "model"},
		Amounts: Amounts{
			PageSize: page, InlineBytes: rapid.SampledFrom([]int{1 << 10, 0, 4}).Draw(rt, "inline bytes"),
			Workers: rapid.IntRange(1, 3).Draw(rt, "workers"), BatchSize: rapid.IntRange(1, min(page, 4)).Draw(rt, "batch size"),
		},
		Times: Times{PollMin: time.Second, PollMax: time.Second, Lease: time.Hour, Renew: time.Hour, Close: time.Second},
		Rules: Rules{
			Head:      rapid.SampledFrom([]HeadPolicy{HeadSkip, HeadPark}).Draw(rt, "head"),
			Unordered: rapid.IntRange(0, 7).Draw(rt, "unordered") == 7,
			Exclusive: rapid.IntRange(0, 7).Draw(rt, "exclusive") == 7,
		},
		Retry:   postbox.RetryProfile{Attempts: rapid.SampledFrom([]int{3, 2, 4, 1, -1}).Draw(rt, "attempts"), Base: time.Hour, Cap: time.Hour, Multiplier: 1, Jitter: -1},
		History: rapid.SampledFrom([]time.Duration{time.Hour, 0}).Draw(rt, "history"),
	}
	switch handler := rapid.IntRange(0, 4).Draw(rt, "handler"); {
	case m.outbox || handler == 4:
		w.broker = &modelBroker{now: time.Unix(0, 0), parts: map[modelPart]modelState{}}
	case handler < 2:
		w.effective = true
	}
	w.spool = spool.New(m.statements, fmt.Sprint("model ", m.runs))
	var err error
	w.id, err = w.spool.Open(w.ctx, m.db.DB)
	require.NoError(rt, err)
	if m.tailing {
		w.wal = newModelLog()
	}
	return w
}

// close ends what a run leaves behind, also when it fails.
func (w *world) close() {
	for _, p := range w.processes {
		w.abandoned = append(w.abandoned, p.runs...)
	}
	for _, run := range w.abandoned {
		run.abandon()
	}
	for _, late := range w.late {
		_ = late.tx.Rollback()
	}
	if w.lock != nil {
		_ = w.lock.tx.Rollback()
	}
	for _, circuits := range w.circuits {
		circuits.Stop()
	}
}

func (w *world) exec(query string, args ...any) {
	_, err := w.db.DB.ExecContext(w.ctx, w.db.Bind(query), args...)
	require.NoError(w, err, query)
}

func (w *world) tick() int64 {
	w.clock++
	return w.clock
}

// withProcess lets one of the processes act.
func (w *world) withProcess(act func(*modelProcess)) {
	if len(w.processes) > 0 {
		act(w.processes[rapid.IntRange(0, len(w.processes)-1).Draw(w.T, "process")])
	}
}

// drafts draws messages.
func (w *world) drafts() (drafts []spool.Draft, messages []*modelMessage) {
	begun := w.tick()
	for range rapid.IntRange(1, 4).Draw(w.T, "messages") {
		m := &modelMessage{
			name:  fmt.Sprintf("m%02d", len(w.messages)+len(messages)),
			key:   rapid.SampledFrom([]string{"a", "a", "b", "b", "c", "a", ""}).Draw(w.T, "key"),
			topic: rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(w.T, "topic"),
			begun: begun,
		}
		m.poison = w.broker != nil && rapid.IntRange(0, 5).Draw(w.T, "poison") == 5
		d := spool.Draft{Topic: m.topic, MessageID: m.name, Key: m.key, Payload: []byte(m.name)}
		m.state, m.due = dialect.StateReady, true
		if rapid.IntRange(0, 7).Draw(w.T, "delay") == 7 {
			d.Delay, m.state, m.due = time.Hour, dialect.StateScheduled, false
		}
		w.Logf("%s: key %q, topic %s, state %d, poison %v", m.name, m.key, m.topic, m.state, m.poison)
		drafts, messages = append(drafts, d), append(messages, m)
	}
	return drafts, messages
}

func (w *world) append() {
	drafts, messages := w.drafts()
	require.NoError(w, w.spool.Append(w.ctx, w.db.DB, spool.Run, drafts))
	w.committed(messages)
}

// appendPlain writes an innocent message without a key.
func (w *world) appendPlain(topic string) {
	m := &modelMessage{name: fmt.Sprintf("m%02d", len(w.messages)), topic: topic, begun: w.tick(), state: dialect.StateReady, due: true}
	require.NoError(w, w.spool.Append(w.ctx, w.db.DB, spool.Run, []spool.Draft{{Topic: topic, MessageID: m.name, Payload: []byte(m.name)}}))
	w.committed([]*modelMessage{m})
}

// committed says that messages are there from now on.
func (w *world) committed(messages []*modelMessage) {
	now := w.tick()
	for _, m := range messages {
		m.committed, m.place = now, pending
	}
	w.messages = append(w.messages, messages...)
	w.learnIDs()
}

// lateAppend is a transaction that is open while others go on. It may have written messages, or be
// unrelated so far.
type lateAppend struct {
	tx       *sql.Tx
	id       int64
	messages []*modelMessage
}

// openLate begins such a transaction, with an id and nothing written.
func (w *world) openLate() *lateAppend {
	tx, err := w.db.DB.BeginTx(w.ctx, nil)
	require.NoError(w, err)
	late := &lateAppend{tx: tx}
	require.NoError(w, tx.QueryRowContext(w.ctx, "SELECT pg_current_xact_id()::text::bigint").Scan(&late.id))
	w.late = append(w.late, late)
	return late
}

// appendLate writes messages in a new transaction or in one that is open, or opens one and writes
// none. Part of what it writes it may take back to a savepoint.
func (w *world) appendLate() {
	var late *lateAppend
	switch at := rapid.IntRange(0, 3).Draw(w.T, "late"); {
	case at < len(w.late):
		late = w.late[at]
	case len(w.late) == 3:
		return
	default:
		late = w.openLate()
		if rapid.IntRange(0, 2).Draw(w.T, "unrelated") == 2 {
			return
		}
	}
	if rapid.IntRange(0, 3).Draw(w.T, "savepoint") == 3 {
		drafts, _ := w.drafts()
		require.NoError(w, w.onLate(late, "SAVEPOINT s"))
		require.NoError(w, w.spool.Append(w.ctx, late.tx, spool.Run, drafts))
		require.NoError(w, w.onLate(late, "ROLLBACK TO SAVEPOINT s"))
		require.NoError(w, w.onLate(late, "SAVEPOINT s"))
	}
	drafts, messages := w.drafts()
	late.messages = append(late.messages, messages...)
	w.messages = append(w.messages, messages...) // their names are taken
	require.NoError(w, w.spool.Append(w.ctx, late.tx, spool.Run, drafts))
}

func (w *world) onLate(late *lateAppend, statement string) error {
	_, err := late.tx.ExecContext(w.ctx, statement)
	return err
}

func (w *world) commitLate() {
	if len(w.late) == 0 {
		return
	}
	at := rapid.IntRange(0, len(w.late)-1).Draw(w.T, "late")
	late := w.late[at]
	w.late = slices.Delete(w.late, at, at+1)
	require.NoError(w, late.tx.Commit())
	w.logCommit(late.id)
	now := w.tick()
	for _, m := range late.messages {
		m.committed, m.place = now, pending
	}
	w.learnIDs()
}

// passTime makes everything due that waits for its time, of one key or of all.
func (w *world) passTime() {
	if w.broker != nil {
		w.clockGoesOn(rapid.SampledFrom([]time.Duration{10 * time.Second, 20 * time.Second, 0, 2 * time.Minute, 25 * time.Hour}).Draw(w.T, "clock"))
	}
	for _, p := range w.processes {
		p.restUntil(time.Now())
	}
	key := rapid.SampledFrom([]string{"all", "all", "a", "b", "c", ""}).Draw(w.T, "key")
	for _, m := range w.messages {
		if m.place == pending && !m.parked && (key == "all" || key == m.key) {
			w.makeDue(m)
		}
	}
}

// longAgo is later than all times of the model, and earlier than all others.
const longAgo = 1 << 40

// makeDue makes a message due that waits for its time. What has waited for longer goes first, or
// else what fails again and again would keep the others away.
func (w *world) makeDue(m *modelMessage) {
	if w.isLocked(m) {
		return
	}
	m.due = true
	w.exec("UPDATE postbox_messages SET available_at = ? WHERE id = ? AND state > 0", max(m.until.Unix(), 0), m.id)
}

func (w *world) expireGhosts() {
	for _, name := range w.ghosts {
		w.expire(name)
	}
	w.ghosts = nil
}

// expire ends the leases of a process.
func (w *world) expire(name string) {
	w.exec("UPDATE postbox_members SET expires_at = 0 WHERE holder = ?", name)
}
