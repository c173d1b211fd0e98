package admin_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/admin"
	"github.com/postbox-go/watermill-postbox/internal/dialect"
	"github.com/postbox-go/watermill-postbox/internal/drain"
	"github.com/postbox-go/watermill-postbox/internal/retries"
	"github.com/postbox-go/watermill-postbox/internal/spool"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const (
	patience = time.Minute
	lanes    = dialect.Lanes
)

var errBroker = errors.New("broker says no")

// bench is an outbox on a database with an operator at it.
type bench struct {
	*testing.T

	database   *testdb.Database
	statements *dialect.Statements
	outbox     *spool.Spool
	target     admin.Target
	admin      *admin.Admin
}

func newBench(t *testing.T, database *testdb.Database) *bench {
	t.Helper()
	database.Migrate(t)
	names, err := dialect.NewNames("", "", "")
	require.NoError(t, err)
	statements, err := dialect.New(dialect.Kind(database.Dialect), names)
	require.NoError(t, err)
	// A name of its own, since a wake-up goes by name to the whole process.
	b := &bench{T: t, database: database, statements: statements, outbox: spool.New(statements, "outbox "+t.Name())}
	b.target = admin.Outbox(b.outbox.Name())
	b.admin = b.operator(database)
	return b
}

// operator returns another one, as another process would have it.
func (b *bench) operator(database *testdb.Database) *admin.Admin {
	b.Helper()
	a, err := admin.New(database.Postbox(), admin.Config{Outbox: b.outbox.Name()}, nil)
	require.NoError(b, err)
	return a
}

func (b *bench) append(drafts ...spool.Draft) {
	b.Helper()
	require.NoError(b, spool.InTx(b.Context(), b.database.DB, b.statements, func(tx *sql.Tx) error {
		if err := b.outbox.Append(b.Context(), tx, spool.Run, drafts); err != nil {
			return err
		}
		return testdb.DueWhenWritten(b.Context(), tx)
	}))
}

func draft(id, topic, key string) spool.Draft {
	return spool.Draft{
		Topic: topic, MessageID: id, Key: key, Payload: []byte("payload of " + id),
		Metadata: map[string]string{"about": id, "bytes": "\x00\xff"},
	}
}

// handler does with each message as the test says, and remembers which it handled.
type handler struct {
	do func(m *spool.Message) error

	mu      sync.Mutex
	handled map[string]int
}

func (h *handler) Handle(_ context.Context, batch []*spool.Message) []spool.Outcome {
	outcomes := make([]spool.Outcome, len(batch))
	for i, m := range batch {
		err := h.do(m)
		outcomes[i] = drain.OutcomeOf(err)
		if err == nil {
			h.mu.Lock()
			h.handled[m.MessageID]++
			h.mu.Unlock()
		}
	}
	return outcomes
}

func (h *handler) Excluded() []string { return nil }

func (h *handler) counts() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]int{}
	for id, n := range h.handled {
		counts[id] = n
	}
	return counts
}

// drain starts a drainer and returns what ends it.
func (b *bench) drain(do func(m *spool.Message) error) (h *handler, stop func()) {
	b.Helper()
	return b.drainPolling(time.Millisecond, 20*time.Millisecond, do)
}

func (b *bench) drainPolling(least, most time.Duration, do func(m *spool.Message) error) (h *handler, stop func()) {
	b.Helper()
	h = newHandler(do)
	return h, b.drainWith(b.database.DB, h, func(c *drain.Config) { c.PollMin, c.PollMax = least, most })
}

func newHandler(do func(m *spool.Message) error) *handler {
	return &handler{do: do, handled: map[string]int{}}
}

// drainWith starts a drainer, as another process would have it, with a configuration that the test
// changes.
func (b *bench) drainWith(db *sql.DB, h drain.Handler, change func(*drain.Config)) (stop func()) {
	b.Helper()
	config := drain.Config{
		Identity: drain.Identity{Holder: b.Name() + postbox.NewMessageID(), Process: "forwarder"},
		Amounts:  drain.Amounts{PageSize: 50, InlineBytes: 1 << 10, Workers: 4, BatchSize: 1},
		Times:    drain.Times{PollMin: time.Millisecond, PollMax: 20 * time.Millisecond, Lease: 5 * time.Second, Renew: 20 * time.Millisecond, Close: 5 * time.Second},
		Retry:    retries.WithDefaults(postbox.RetryProfile{Attempts: 2, Base: time.Millisecond, Cap: time.Millisecond}, 2),
	}
	change(&config)
	drainer := drain.New(db, spool.New(b.statements, b.outbox.Name()), h, config, watermill.NopLogger{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- drainer.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(b, <-done)
	})
	b.Cleanup(stop)
	<-drainer.Ready()
	return stop
}

// bury lets all messages of the outbox die.
func (b *bench) bury() {
	b.Helper()
	_, stop := b.drain(func(*spool.Message) error { return errBroker })
	b.eventually(func() bool { return b.pending() == 0 }, "all messages are dead")
	stop()
}

// buryInbox writes a letter as an inbox would, with its claim and two failures, and returns the
// claim's key.
func (b *bench) buryInbox(id string, outbox int64) []byte {
	b.Helper()
	subject := []byte("sixteen bytes of " + id)
	for attempt := 1; attempt <= 2; attempt++ {
		b.run(b.statements.InsertFailure(dialect.Failure{Subject: subject, Attempt: attempt, Error: "handler says no", Process: "consumer"}))
	}
	b.exec(b.statements.Claim, subject)
	metadata, err := spool.EncodeMetadata(draft(id, "", "").Metadata)
	require.NoError(b, err)
	hash := int64(7)
	b.run(b.statements.InsertDeadLetter(dialect.InboxLetter{
		Letter: dialect.Letter{
			Subject: subject, Spool: outbox, Topic: "orders", MessageID: []byte(id),
			Payload: []byte("payload of " + id), Metadata: metadata, Error: "handler says no",
		},
		Consumer: "billing", Source: "orders", CarriedID: []byte(id), Key: []byte("key"), KeyHash: &hash, Attempts: 2,
	}))
	return subject
}

func (b *bench) run(query dialect.Query) {
	b.Helper()
	b.exec(query.Text, query.Args...)
}

func (b *bench) exec(text string, args ...any) {
	b.Helper()
	_, err := b.database.DB.ExecContext(b.Context(), text, args...)
	require.NoError(b, err)
}

// join enters a process among those that drain the outbox, for so many microseconds.
func (b *bench) join(holder, inFlight string, ttl int64) {
	b.Helper()
	member := dialect.Member{Spool: b.outboxID(), Holder: holder}
	b.run(b.statements.Join(dialect.JoinParams{Member: member, InFlight: inFlight, TTL: ttl}))
}

func (b *bench) outboxID() int64 {
	b.Helper()
	id, err := b.outbox.Open(b.Context(), b.database.DB)
	require.NoError(b, err)
	return id
}

func (b *bench) list(filter admin.Filter) []admin.DeadLetter {
	b.Helper()
	letters, _, err := b.admin.DeadLetters(b.Context(), filter)
	require.NoError(b, err)
	return letters
}

func (b *bench) only(filter admin.Filter) admin.DeadLetter {
	b.Helper()
	letters := b.list(filter)
	require.Len(b, letters, 1)
	return letters[0]
}

func (b *bench) pending() int {
	b.Helper()
	return b.database.Count(b.T, "SELECT COUNT(*) FROM postbox_messages")
}

func (b *bench) dead() int {
	b.Helper()
	return b.database.Count(b.T, "SELECT COUNT(*) FROM postbox_dead_letters")
}

// beat is the heartbeat of a process that handles these messages.
func beat(inFlight map[string]int) string { return spool.Heartbeat{InFlight: inFlight}.Encode() }

func (b *bench) eventually(condition func() bool, what string) {
	b.Helper()
	require.Eventually(b, condition, patience, testdb.PollPause, what)
}

func numbered(n int) []spool.Draft {
	drafts := make([]spool.Draft, n)
	for i := range drafts {
		drafts[i] = draft(fmt.Sprintf("%04d", i), "orders", fmt.Sprint(i%3))
	}
	return drafts
}

func ids(letters []admin.DeadLetter) []string {
	var list []string
	for _, letter := range letters {
		list = append(list, letter.MessageID)
	}
	return list
}

// withoutSearchPath returns a DSN of PostgreSQL that finds no table without its schema.
func withoutSearchPath(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	query := u.Query()
	query.Del("search_path")
	u.RawQuery = query.Encode()
	return u.String()
}
