package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/inboxstore"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// Patience is how long a test waits for what must come.
const Patience = time.Minute

// Bench is the queue "q" as one process has it, with a table for the effects of handlers.
type Bench struct {
	// Database is a handle of the test's own: that of the store may have but one connection.
	*testdb.Database
	T      *testing.T
	Pool   *sql.DB // of the store
	Store  *inboxstore.Store
	Logger watermill.LoggerAdapter // of the processes
	ledger *ledger
}

// New returns a bench in an empty database.
func New(t *testing.T, database *testdb.Database) *Bench {
	t.Helper()
	looking := *database
	looking.DB = database.Open(t)
	return on(t, &looking, database.DB)
}

// OnOneHandle returns a bench in an empty database that has no second handle, such as one in
// memory.
func OnOneHandle(t *testing.T, database *testdb.Database) *Bench {
	t.Helper()
	return on(t, database, database.DB)
}

func on(t *testing.T, database *testdb.Database, pool *sql.DB) *Bench {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (n INTEGER NOT NULL, tx INTEGER NOT NULL, id VARCHAR(100) NOT NULL)")
	b := &Bench{Database: database, T: t, ledger: &ledger{transactions: map[*sql.Tx]int{}}}
	return b.Over(pool)
}

// StoreFor returns a store in the database through a handle, without a cache unless change gives it
// one.
func StoreFor(t *testing.T, database *testdb.Database, db *sql.DB, change func(*inboxstore.Config)) *inboxstore.Store {
	t.Helper()
	config := inboxstore.Config{CacheSize: -1}
	if change != nil {
		change(&config)
	}
	store, err := inboxstore.New(database.On(db), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// Another is the same queue as another process has it.
func (b *Bench) Another() *Bench { return b.Over(b.Open(b.T)) }

// Over is the same queue through another handle.
func (b *Bench) Over(db *sql.DB) *Bench {
	b.T.Helper()
	other := *b
	other.Pool, other.Store = db, StoreFor(b.T, b.Database, db, func(c *inboxstore.Config) { c.CloseTimeout = 5 * time.Second })
	return &other
}

// Put stores messages with these ids. In "key/1", the part before the slash is the ordering key.
func (b *Bench) Put(ids ...string) {
	b.T.Helper()
	for _, id := range ids {
		fresh, err := b.Store.Defer(b.T.Context(), "q", inboxstore.Key{Consumer: "q", MessageID: id}, Keyed(id))
		require.NoError(b.T, err)
		require.True(b.T, fresh)
	}
}

// Keyed returns a message with this id. In "key/1", the part before the slash is the ordering key.
func Keyed(id string) *message.Message {
	msg := message.NewMessage(id, []byte("payload of "+id))
	if key, _, found := strings.Cut(id, "/"); found {
		msg.Metadata.Set(postbox.MetadataOrderingKey, key)
	}
	return msg
}

// Await fails the test where a signal does not come.
func (b *Bench) Await(signal <-chan struct{}, what string) {
	b.T.Helper()
	select {
	case <-signal:
	case <-time.After(Patience):
		require.FailNow(b.T, "timed out waiting", what)
	}
}

// Eventually fails the test where a condition does not come.
func (b *Bench) Eventually(condition func() bool, what string) {
	b.T.Helper()
	require.Eventually(b.T, condition, Patience, testdb.PollPause, what)
}

// Drained waits until nothing is left in the queue.
func (b *Bench) Drained() {
	b.T.Helper()
	b.Eventually(func() bool { return b.Pending() == 0 }, "the queue is empty")
}

// Renewed waits until the leases have been renewed so many times: whatever was under way has gone
// on meanwhile.
func (b *Bench) Renewed(times int) {
	b.T.Helper()
	until := func() int { return b.Count(b.T, "SELECT MAX(expires_at) FROM postbox_members") }
	for last := until(); times > 0; times-- {
		b.Eventually(func() bool { return until() > last }, "the leases are renewed")
		last = until()
	}
}

// Pending counts the messages of the queue that are neither done nor dead.
func (b *Bench) Pending() int {
	b.T.Helper()
	return b.Count(b.T, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'q'")
}

// Untried counts messages without a failed attempt.
func (b *Bench) Untried() int {
	b.T.Helper()
	return b.Count(b.T, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'q' AND attempts = 0")
}

// Dead returns the ids of the dead letters.
func (b *Bench) Dead() []string {
	b.T.Helper()
	return b.List("SELECT message_id FROM postbox_dead_letters ORDER BY id")
}

// Failures returns the texts of all failures that were recorded.
func (b *Bench) Failures() []string {
	b.T.Helper()
	return b.List("SELECT error FROM postbox_failures ORDER BY id")
}

// Attempts are the failures that count.
func (b *Bench) Attempts() []string {
	b.T.Helper()
	return b.List("SELECT error FROM postbox_failures WHERE attempt > 0 ORDER BY id")
}

// List returns the one column of a query.
func (b *Bench) List(query string, args ...any) []string {
	b.T.Helper()
	rows, err := b.DB.QueryContext(b.T.Context(), b.Bind(query), args...)
	require.NoError(b.T, err)
	defer func() { _ = rows.Close() }()
	var list []string
	for rows.Next() {
		var value []byte
		require.NoError(b.T, rows.Scan(&value))
		list = append(list, string(value))
	}
	require.NoError(b.T, rows.Err())
	return list
}

// ledger numbers effects and the transactions that they are written in.
type ledger struct {
	mu           sync.Mutex
	written      int
	transactions map[*sql.Tx]int
}

// Effect writes one in the transaction that the context carries.
func (b *Bench) Effect(ctx context.Context, msg *message.Message) error {
	tx, ok := postbox.TxFromContext(ctx)
	if !ok {
		return errors.New("no transaction in the context")
	}
	b.ledger.mu.Lock()
	b.ledger.written++
	if _, known := b.ledger.transactions[tx]; !known {
		b.ledger.transactions[tx] = len(b.ledger.transactions)
	}
	n, number := b.ledger.written, b.ledger.transactions[tx]
	b.ledger.mu.Unlock()
	_, err := tx.ExecContext(ctx, b.Bind("INSERT INTO effects VALUES (?, ?, ?)"), n, number, msg.UUID)
	return err
}

// Effects returns the ids of messages whose effects are committed, in the order of the effects.
func (b *Bench) Effects() []string {
	b.T.Helper()
	return b.List("SELECT id FROM effects ORDER BY n")
}

// Commits counts the transactions that have committed effects.
func (b *Bench) Commits() int {
	b.T.Helper()
	return b.Count(b.T, "SELECT COUNT(DISTINCT tx) FROM effects")
}

// Another returns an empty database of the same kind, through the same driver.
func Another(t *testing.T, like *testdb.Database) *testdb.Database {
	t.Helper()
	database := map[postbox.Dialect]func(*testing.T) *testdb.Database{
		postbox.SQLite: testdb.SQLite, postbox.PostgreSQL: testdb.Postgres, postbox.MySQL: testdb.MySQL,
	}[like.Dialect](t)
	database.Driver = like.Driver
	database.DB = database.Open(t)
	return database
}
