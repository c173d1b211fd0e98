package pgtail_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/instruments"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
	"github.com/postbox-go/watermill-postbox/metrics"
	"github.com/postbox-go/watermill-postbox/tail/pgtail"
)

// patience is how long a test waits for what must happen. To make a slot, the server waits for the
// transactions of the other tests.
const patience = 2 * time.Minute

var errBroker = errors.New("broker says no")

// world is a database whose log can be read, with what observes its forwarders.
type world struct {
	*testing.T
	*testdb.Database

	recorder *recorder
}

// newWorld returns a migrated database with a publication, or skips the test if there is no server
// for it.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, Database: testdb.PostgresLog(t), recorder: &recorder{values: map[string]float64{}}}
	w.Migrate(t)
	require.NoError(t, pgtail.Setup(t.Context(), w.Postbox(), w.publication()))
	t.Cleanup(func() { // the publication has one name space for all schemas
		require.NoError(t, pgtail.Remove(context.Background(), w.Postbox(), w.publication()))
	})
	return w
}

// publication is one of this test's own.
func (w *world) publication() string {
	var schema string
	require.NoError(w.T, w.DB.QueryRowContext(context.Background(), "SELECT current_schema()").Scan(&schema))
	return schema + "_tail"
}

// tail returns a Tail, as a process has it.
func (w *world) tail(change ...func(*pgtail.Config)) *pgtail.Tail {
	w.Helper()
	config := pgtail.Config{DSN: w.DSN, Publication: w.publication()}
	for _, f := range change {
		f(&config)
	}
	made, err := pgtail.New(config)
	require.NoError(w, err)
	return made.(*pgtail.Tail)
}

// running is a forwarder under way.
type running struct {
	*forwarder.Forwarder

	log    *logger
	cancel context.CancelFunc
	ended  chan error
}

// start runs a forwarder that polls once an hour, unless it is woken, or the configuration says
// something else.
func (w *world) start(broker message.Publisher, config forwarder.Config) *running {
	w.Helper()
	if config.PollMax == 0 {
		config.PollMax = time.Hour
	}
	if config.Lease == 0 {
		config.Lease = 5 * time.Second
	}
	r := &running{log: &logger{}, ended: make(chan error, 1)}
	db := w.On(w.Open(w.T))
	db.Metrics = w.recorder
	var err error
	r.Forwarder, err = forwarder.New(db, broker, config, r.log)
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx) }()
	w.Cleanup(func() { cancel(); _ = r.Close() })
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	require.NoError(t, <-r.ended)
}

// follows waits until the forwarder takes messages from the log: then a message reaches the broker
// without a poll. Of forwarders that share a reader, the one that began first logs it.
func (w *world) follows(sharing ...*running) {
	w.Helper()
	w.eventually(func() bool {
		return slices.ContainsFunc(sharing, func(r *running) bool { return r.log.count("Postbox reads the log") > 0 })
	}, "the log is read")
	w.takes(func(m *message.Message) { w.publish("warm-up", m) })
}

// takes publishes messages until one of them is taken from the log.
func (w *world) takes(publish func(m *message.Message)) {
	w.Helper()
	before := w.recorder.value(instruments.LogTaken)
	w.eventually(func() bool {
		publish(message.NewMessage(watermill.NewULID(), nil))
		return w.recorder.value(instruments.LogTaken) > before
	}, "messages are taken from the log")
}

// done waits until no message is stored.
func (w *world) done() {
	w.Helper()
	w.eventually(func() bool { return w.rows() == 0 }, "no message is stored any more")
}

func (w *world) eventually(condition func() bool, what string) {
	w.Helper()
	require.Eventually(w, condition, patience, testdb.PollPause, what)
}

// publish stores messages in a transaction of another process.
func (w *world) publish(topic string, messages ...*message.Message) {
	w.Helper()
	w.inTx("outbox", func(tx *sql.Tx, publish func(topic string, messages ...*message.Message)) {
		publish(topic, messages...)
	})
}

// inTx runs a function in a transaction, and commits it.
func (w *world) inTx(outbox string, do func(tx *sql.Tx, publish func(topic string, messages ...*message.Message))) {
	w.Helper()
	tx, err := w.DB.BeginTx(w.Context(), nil)
	require.NoError(w, err)
	defer func() { _ = tx.Rollback() }()
	do(tx, w.publisher(tx, outbox))
	require.NoError(w, tx.Commit())
}

func (w *world) publisher(tx *sql.Tx, outbox string) func(topic string, messages ...*message.Message) {
	w.Helper()
	publisher, err := forwarder.NewPublisher(w.Postbox(), forwarder.PublisherConfig{Outbox: outbox}, nil)
	require.NoError(w, err)
	return func(topic string, messages ...*message.Message) {
		w.Helper()
		for _, m := range messages {
			m.SetContext(postbox.ContextWithTx(w.Context(), tx))
		}
		require.NoError(w, publisher.Publish(topic, messages...))
	}
}

// keyed returns a message with a key.
func keyed(id, key string) *message.Message {
	m := message.NewMessage(id, []byte("payload of "+id))
	m.Metadata.Set(postbox.MetadataOrderingKey, key)
	return m
}

// numbered returns messages of one key in order.
func numbered(key string, n int) (messages []*message.Message, ids []string) {
	for i := range n {
		id := fmt.Sprintf("%s-%05d", key, i)
		messages, ids = append(messages, keyed(id, key)), append(ids, id)
	}
	return messages, ids
}

// broker remembers what was published to a topic other than that of the warm-up.
type broker struct {
	mu   sync.Mutex
	got  []*message.Message
	fail func(m *message.Message) error
}

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range messages {
		if topic == "warm-up" {
			continue
		}
		if b.fail != nil {
			if err := b.fail(m); err != nil {
				return err
			}
		}
		b.got = append(b.got, m)
	}
	return nil
}

func (b *broker) Close() error { return nil }

// ids returns the ids of a key in the order in which they were published.
func (b *broker) ids(key string) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		if m.Metadata.Get(postbox.MetadataOrderingKey) == key {
			ids = append(ids, m.UUID)
		}
	}
	return ids
}

func (b *broker) has(ids ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if !slices.ContainsFunc(b.got, func(m *message.Message) bool { return m.UUID == id }) {
			return false
		}
	}
	return true
}

// recorder adds up counters, and has the last value of gauges.
type recorder struct {
	mu     sync.Mutex
	values map[string]float64
}

func (r *recorder) Record(i *metrics.Instrument, value float64, _ ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i.Kind == metrics.Gauge {
		r.values[i.Name] = value
	} else {
		r.values[i.Name] += value
	}
}

func (r *recorder) value(i *metrics.Instrument) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values[i.Name]
}

// logger remembers the messages of log lines with their errors.
type logger struct {
	watermill.NopLogger

	mu    sync.Mutex
	lines []string
}

func (l *logger) Info(msg string, _ watermill.LogFields) { l.add(msg) }

func (l *logger) Error(msg string, err error, _ watermill.LogFields) {
	l.add(fmt.Sprint(msg, ": ", err))
}

func (l *logger) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *logger) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

// count returns how many lines contain the text.
func (l *logger) count(text string) (n int) {
	for _, line := range l.all() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func (l *logger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (w *world) rows() int { return w.Count(w.T, "SELECT COUNT(*) FROM postbox_messages") }
