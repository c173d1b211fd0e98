package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	postbox "github.com/postbox-go/watermill-postbox"
	"github.com/postbox-go/watermill-postbox/forwarder"
	"github.com/postbox-go/watermill-postbox/internal/testdb"
)

const patience = time.Minute

var errBroker = errors.New("broker says no")

// broker is a publisher that remembers, and fails as the test says.
type broker struct {
	mu        sync.Mutex
	published []published
	calls     int
	closed    bool
	fail      func(topic string, msg *message.Message) error
}

type published struct {
	topic   string
	message *message.Message
}

// Publish takes messages one after the other until one fails, as real ones do.
func (b *broker) Publish(topic string, messages ...*message.Message) error {
	b.mu.Lock()
	b.calls++
	fail := b.fail
	b.mu.Unlock()
	for _, msg := range messages {
		if fail != nil {
			if err := fail(topic, msg); err != nil {
				return err
			}
		}
		b.mu.Lock()
		b.published = append(b.published, published{topic: topic, message: msg})
		b.mu.Unlock()
	}
	return nil
}

func (b *broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// ids returns the UUIDs in the order in which they were published first.
func (b *broker) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	seen := map[string]bool{}
	for _, p := range b.published {
		if !seen[p.message.UUID] {
			seen[p.message.UUID] = true
			ids = append(ids, p.message.UUID)
		}
	}
	return ids
}

func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls
}

func (b *broker) all() []published {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.published)
}

func publisherFor(t *testing.T, database *testdb.Database, change func(*forwarder.PublisherConfig)) *forwarder.Publisher {
	t.Helper()
	config := forwarder.PublisherConfig{}
	if change != nil {
		change(&config)
	}
	publisher, err := forwarder.NewPublisher(database.Postbox(), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

func forwarderFor(t *testing.T, database *testdb.Database, to message.Publisher, change func(*forwarder.Config)) *forwarder.Forwarder {
	t.Helper()
	return forwarderWithLog(t, database, to, change, nil)
}

func forwarderWithLog(t *testing.T, database *testdb.Database, to message.Publisher, change func(*forwarder.Config), logger watermill.LoggerAdapter) *forwarder.Forwarder {
	t.Helper()
	config := forwarder.Config{
		Tuning: postbox.Tuning{PollMin: time.Millisecond, PollMax: 50 * time.Millisecond, ProbeMin: 5 * time.Millisecond, ProbeMax: 20 * time.Millisecond, Lease: 3 * time.Second},
		Retry:  postbox.RetryProfile{Base: 5 * time.Millisecond, Cap: 20 * time.Millisecond},
	}
	if change != nil {
		change(&config)
	}
	fwd, err := forwarder.New(database.Postbox(), to, config, logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = fwd.Close() })
	return fwd
}

// run starts the forwarder; it ends with the test.
func run(t *testing.T, fwd *forwarder.Forwarder) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fwd.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = fwd.Close()
		require.NoError(t, <-done)
	})
}

// inTx publishes in a transaction of its own.
func inTx(t *testing.T, db *sql.DB, publisher message.Publisher, topic string, messages ...*message.Message) {
	t.Helper()
	require.NoError(t, postbox.InTx(t.Context(), db, func(ctx context.Context, _ *sql.Tx) error {
		for _, msg := range messages {
			msg.SetContext(ctx)
		}
		return publisher.Publish(topic, messages...)
	}))
}

func newMessage(uuid, key string) *message.Message {
	msg := message.NewMessage(uuid, []byte("payload of "+uuid))
	if key != "" {
		msg.Metadata.Set("partition_key", key)
	}
	return msg
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, patience, testdb.PollPause, what)
}

func pending(t *testing.T, database *testdb.Database) int {
	t.Helper()
	return database.Count(t, "SELECT COUNT(*) FROM postbox_messages")
}

func dead(t *testing.T, database *testdb.Database) int {
	t.Helper()
	return database.Count(t, "SELECT COUNT(*) FROM postbox_dead_letters")
}
