package pipeline_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

// patience is how long a test waits for everything to be through, on a machine that has much else
// to do.
const patience = time.Minute

// consumers are the handlers of the consuming service, each with what makes its messages easy to
// mix up: two handlers get the same message, and a third one a message with the same id on another
// topic.
var consumers = []string{"ledger", "audit", "mail"}

// order is the business of the producer.
type order struct {
	Key string
	Seq int
}

// world is two services, each with its database, and what the producer has committed.
type world struct {
	producer, consumer *testdb.Database
	broker             broker
	orders, receipts   string // topics: from the producer, and from the ledger to the mail

	db     *sql.DB // the producer's own handle
	outbox *forwarder.Publisher

	mu        sync.Mutex
	next      map[string]int   // the next number of each key
	committed map[string][]int // the numbers of each key that were committed, in order
	undone    int
}

func newWorld(t *testing.T, b broker, open func(t *testing.T) *testdb.Database) *world {
	t.Helper()
	topic := "pipeline-" + postbox.NewMessageID()
	w := &world{
		producer: open(t).Migrate(t), consumer: open(t).Migrate(t), broker: b,
		orders: topic + "-orders", receipts: topic + "-receipts",
		next: map[string]int{}, committed: map[string][]int{},
	}
	w.producer.Exec(t, "CREATE TABLE orders (ordering_key VARCHAR(20) NOT NULL, seq INTEGER NOT NULL)")
	id := "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	if w.consumer.Dialect == postbox.SQLite {
		id = "INTEGER PRIMARY KEY AUTOINCREMENT"
	}
	// No unique key: a second effect must show, not fail.
	w.consumer.Exec(t, "CREATE TABLE effects (id "+id+", consumer VARCHAR(20) NOT NULL, ordering_key VARCHAR(20) NOT NULL, seq INTEGER NOT NULL)")
	require.NoError(t, b.ensure(w.orders, "ledger", "audit"))
	require.NoError(t, b.ensure(w.receipts, "mail"))
	w.db = w.producer.Open(t)
	var err error
	w.outbox, err = forwarder.NewPublisher(w.producer.On(w.db), forwarder.PublisherConfig{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, w.outbox.Close())
		b.remove(t, w.orders, "ledger", "audit")
		b.remove(t, w.receipts, "mail")
	})
	return w
}

var errChangedMind = errors.New("the producer rolls back")

// undoes says which transactions of a key are rolled back after everything is written.
func undoes(seq int) bool { return seq%5 == 4 }

// transact runs one transaction of a key: a row and a message, or neither.
func (w *world) transact(ctx context.Context, key string) error {
	w.mu.Lock()
	o := order{Key: key, Seq: w.next[key]}
	w.next[key]++
	w.mu.Unlock()
	err := postbox.InTx(ctx, w.db, func(ctx context.Context, tx *sql.Tx) error {
		insert := w.producer.Bind("INSERT INTO orders (ordering_key, seq) VALUES (?, ?)")
		if _, err := tx.ExecContext(ctx, insert, o.Key, o.Seq); err != nil {
			return err
		}
		payload, err := json.Marshal(o)
		if err != nil {
			return err
		}
		msg := message.NewMessage(postbox.NewMessageID(), payload)
		msg.Metadata.Set(postbox.MetadataOrderingKey, o.Key)
		msg.SetContext(ctx)
		if err := w.outbox.Publish(w.orders, msg); err != nil {
			return err
		}
		if undoes(o.Seq) {
			return errChangedMind
		}
		return nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, errChangedMind) {
		w.undone++
		return nil
	}
	if err == nil {
		w.committed[key] = append(w.committed[key], o.Seq)
	}
	return err
}

// produce runs transactions of all keys side by side, one after the other for each. The pause
// between two is for those who want it to take a while.
func (w *world) produce(ctx context.Context, keys, each int, pause time.Duration) error {
	var producers errgroup.Group
	for k := range keys {
		producers.Go(func() error {
			tick := time.NewTicker(max(pause, time.Microsecond))
			defer tick.Stop()
			for range each {
				<-tick.C
				if err := w.transact(ctx, fmt.Sprintf("key-%d", k)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return producers.Wait()
}

// total is the number of committed messages.
func (w *world) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, seqs := range w.committed {
		n += len(seqs)
	}
	return n
}

// applied is the number of effects of a consumer.
func (w *world) applied(t *testing.T, consumer string) int {
	t.Helper()
	return w.consumer.Count(t, "SELECT COUNT(*) FROM effects WHERE consumer = ?", consumer)
}

// awaitAll waits until all consumers have applied everything, and both outboxes are empty.
func (w *world) awaitAll(t *testing.T) {
	t.Helper()
	var state string
	require.Eventually(t, func() bool {
		total, done := w.total(), true
		report := []string{fmt.Sprintf("%d committed", total)}
		for _, consumer := range consumers {
			n := w.applied(t, consumer)
			done = done && n >= total
			report = append(report, fmt.Sprintf("%s applied %d", consumer, n))
		}
		for name, database := range map[string]*testdb.Database{"producer": w.producer, "consumer": w.consumer} {
			n := database.Count(t, "SELECT COUNT(*) FROM postbox_messages")
			done = done && n == 0
			report = append(report, fmt.Sprintf("%d pending at the %s", n, name))
		}
		state = strings.Join(report, ", ")
		return done
	}, patience, 50*time.Millisecond, "not everything came through")
	t.Log(state)
}

// flush sends one more message of each key and waits for it: it arrives behind whatever copies of
// earlier ones still stand in the broker, which have then had their chance to do harm.
func (w *world) flush(t *testing.T, keys int) {
	t.Helper()
	w.awaitAll(t)
	before := w.total()
	for w.total() < before+keys { // some are rolled back
		require.NoError(t, w.produce(t.Context(), keys, 1, 0))
	}
	w.awaitAll(t)
}

// check is the oracle. Without order, what counts is that each consumer applied the same, once.
func (w *world) check(t *testing.T, ordered bool) {
	t.Helper()
	require.Equal(t, w.total(), w.producer.Count(t, "SELECT COUNT(*) FROM orders"), "G1: a message and its row have one fate")
	require.Positive(t, w.undone)
	for _, consumer := range consumers {
		for key, want := range w.committed {
			got := w.effects(t, consumer, key)
			if ordered {
				require.Equal(t, want, got, "G2, G3, G4: %s, %s", consumer, key)
			} else {
				require.ElementsMatch(t, want, got, "G2, G4: %s, %s", consumer, key)
			}
		}
		require.Equal(t, w.total(), w.applied(t, consumer), "G9: written = applied, by %s", consumer)
	}
	for _, database := range []*testdb.Database{w.producer, w.consumer} {
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters"), "G7: no fault here is the fault of a message")
		require.Zero(t, database.Count(t, "SELECT COUNT(*) FROM postbox_messages"), "G9: nothing is pending")
	}
}

func (w *world) effects(t *testing.T, consumer, key string) []int {
	t.Helper()
	rows, err := w.consumer.DB.QueryContext(t.Context(),
		w.consumer.Bind("SELECT seq FROM effects WHERE consumer = ? AND ordering_key = ? ORDER BY id"), consumer, key)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	var seqs []int
	for rows.Next() {
		var seq int
		require.NoError(t, rows.Scan(&seq))
		seqs = append(seqs, seq)
	}
	require.NoError(t, rows.Err())
	return seqs
}
