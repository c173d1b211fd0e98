package inboxstore_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
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

// queueBench is the queue "q" as one process has it, with a table for the effects of handlers.
type queueBench struct {
	// Database is a handle of the test's own: that of the store may have but one connection.
	*testdb.Database
	t      *testing.T
	db     *sql.DB // of the store
	store  *inboxstore.Store
	ledger *ledger
	logger watermill.LoggerAdapter // of the processes
}

func newQueueBench(t *testing.T, database *testdb.Database) *queueBench {
	t.Helper()
	database.Migrate(t)
	database.Exec(t, "CREATE TABLE effects (n INTEGER NOT NULL, tx INTEGER NOT NULL, id VARCHAR(100) NOT NULL)")
	looking := *database
	looking.DB = database.Open(t)
	b := &queueBench{Database: &looking, t: t, ledger: &ledger{transactions: map[*sql.Tx]int{}}}
	return b.over(database.DB)
}

// another is the same queue as another process has it.
func (b *queueBench) another() *queueBench { return b.over(b.Open(b.t)) }

// over is the same queue through another handle.
func (b *queueBench) over(db *sql.DB) *queueBench {
	b.t.Helper()
	other := *b
	other.db, other.store = db, storeFor(b.t, b.Database, db, func(c *inboxstore.Config) { c.CloseTimeout = 5 * time.Second })
	return &other
}

// put stores messages. What stands before a slash in an id is the ordering key.
func (b *queueBench) put(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		fresh, err := b.store.Defer(b.t.Context(), "q", inboxstore.Key{Consumer: "q", MessageID: id}, keyed(id))
		require.NoError(b.t, err)
		require.True(b.t, fresh)
	}
}

func keyed(id string) *message.Message {
	msg := message.NewMessage(id, []byte("payload of "+id))
	if key, _, found := strings.Cut(id, "/"); found {
		msg.Metadata.Set(postbox.OrderingKey, key)
	}
	return msg
}

// quick is a configuration for impatient tests.
func quick(change func(*inboxstore.QueueConfig)) inboxstore.QueueConfig {
	config := inboxstore.QueueConfig{
		PollMin: time.Millisecond, PollMax: 20 * time.Millisecond, Lease: 5 * time.Second,
		Retry:    postbox.RetryProfile{Attempts: 3, Base: time.Millisecond, Cap: 5 * time.Millisecond},
		ProbeMin: 5 * time.Millisecond, ProbeMax: 20 * time.Millisecond,
	}
	if change != nil {
		change(&config)
	}
	return config
}

// queueProcess is a subscriber at work, with handlers that say why they fail.
type queueProcess struct {
	*inboxstore.Subscriber
	serving sync.WaitGroup
}

func (b *queueBench) start(config inboxstore.QueueConfig, handle func(msg *message.Message) error) *queueProcess {
	b.t.Helper()
	subscriber, err := inboxstore.NewSubscriber(b.store, config, b.logger)
	require.NoError(b.t, err)
	messages, err := subscriber.Subscribe(context.Background(), "q")
	require.NoError(b.t, err)
	p := &queueProcess{Subscriber: subscriber}
	p.serving.Go(func() {
		for msg := range messages {
			p.serving.Go(func() {
				if err := handle(msg); err != nil {
					inboxstore.Fail(msg.Context(), err)
					msg.Nack()
					return
				}
				msg.Ack()
			})
		}
	})
	b.t.Cleanup(p.close)
	return p
}

// close can be called twice.
func (p *queueProcess) close() {
	_ = p.Close()
	p.serving.Wait()
}

// hold waits for the channel, or for the end of the message's context, so that no handler outlives its test.
func hold(ctx context.Context, until <-chan struct{}) error {
	select {
	case <-until:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await fails the test where a signal does not come.
func (b *queueBench) await(signal <-chan struct{}, what string) {
	b.t.Helper()
	select {
	case <-signal:
	case <-time.After(patience):
		require.FailNow(b.t, "timed out waiting", what)
	}
}

func (b *queueBench) eventually(condition func() bool, what string) {
	b.t.Helper()
	require.Eventually(b.t, condition, patience, 2*time.Millisecond, what)
}

// drained waits until nothing is left in the queue.
func (b *queueBench) drained() {
	b.t.Helper()
	b.eventually(func() bool { return b.pending() == 0 }, "the queue is empty")
}

// renewed waits until the leases have been renewed so many times: whatever was under way has gone on meanwhile.
func (b *queueBench) renewed(times int) {
	b.t.Helper()
	until := func() int { return b.Count(b.t, "SELECT MAX(expires_at) FROM postbox_lanes") }
	for last := until(); times > 0; times-- {
		b.eventually(func() bool { return until() > last }, "the leases are renewed")
		last = until()
	}
}

func (b *queueBench) pending() int {
	b.t.Helper()
	return b.Count(b.t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'q'")
}

// untried counts messages without a failed attempt.
func (b *queueBench) untried() int {
	b.t.Helper()
	return b.Count(b.t, "SELECT COUNT(*) FROM postbox_messages WHERE topic = 'q' AND attempts = 0")
}

func (b *queueBench) dead() []string {
	b.t.Helper()
	return b.list("SELECT message_id FROM postbox_dead_letters ORDER BY id")
}

func (b *queueBench) failures() []string {
	b.t.Helper()
	return b.list("SELECT error FROM postbox_failures ORDER BY id")
}

// attempts are the failures that count.
func (b *queueBench) attempts() []string {
	b.t.Helper()
	return b.list("SELECT error FROM postbox_failures WHERE attempt > 0 ORDER BY id")
}

// list returns the one column of a query.
func (b *queueBench) list(query string, args ...any) []string {
	b.t.Helper()
	rows, err := b.DB.QueryContext(b.t.Context(), b.Bind(query), args...)
	require.NoError(b.t, err)
	defer func() { _ = rows.Close() }()
	var list []string
	for rows.Next() {
		var value []byte
		require.NoError(b.t, rows.Scan(&value))
		list = append(list, string(value))
	}
	require.NoError(b.t, rows.Err())
	return list
}

// ledger numbers effects and the transactions that they are written in.
type ledger struct {
	mu           sync.Mutex
	written      int
	transactions map[*sql.Tx]int
}

// effect writes one in the transaction that the context carries.
func (b *queueBench) effect(ctx context.Context, msg *message.Message) error {
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

// effects returns the ids of messages whose effects are committed, in the order of the effects.
func (b *queueBench) effects() []string {
	b.t.Helper()
	return b.list("SELECT id FROM effects ORDER BY n")
}

// commits counts the transactions that have committed effects.
func (b *queueBench) commits() int {
	b.t.Helper()
	return b.Count(b.t, "SELECT COUNT(DISTINCT tx) FROM effects")
}

// journal is what handlers note, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

// add notes a line and returns how often it has been noted by now.
func (j *journal) add(line string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
	return count(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (j *journal) times(line string) int { return count(j.all(), line) }

func count(lines []string, line string) int {
	n := 0
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// ofKey returns the ids of one ordering key.
func ofKey(ids []string, key string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !strings.HasPrefix(id, key+"/") })
}
