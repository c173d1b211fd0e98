package adoption_test

import (
	"context"
	"database/sql"
	"fmt"
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

const (
	patience = 60 * time.Second
	tick     = 10 * time.Millisecond
)

// broker notes what is published, and lets a test see it.
type broker struct {
	mu   sync.Mutex
	list []string
}

// Publish notes the payloads.
func (b *broker) Publish(_ string, messages ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range messages {
		b.list = append(b.list, string(msg.Payload))
	}
	return nil
}

// Close does nothing: old and new daemons share the broker.
func (b *broker) Close() error { return nil }

// first returns what came, each message once, at its first time.
func (b *broker) first() (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := map[string]bool{}
	for _, payload := range b.list {
		if !seen[payload] {
			list = append(list, payload)
		}
		seen[payload] = true
	}
	return list
}

// world is a service that places orders, each with a message.
type world struct {
	*testing.T

	database *testdb.Database
	placed   []string
}

func newWorld(t *testing.T, database *testdb.Database) *world {
	t.Helper()
	database.Exec(t, "CREATE TABLE orders (number INTEGER NOT NULL)")
	return &world{T: t, database: database}
}

// place places orders and publishes in their transactions.
func (w *world) place(number int, publish func(ctx context.Context, tx *sql.Tx, msg *message.Message) error) {
	w.Helper()
	for range number {
		payload := fmt.Sprintf("order %05d", len(w.placed))
		err := postbox.InTx(w.Context(), w.database.DB, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, w.database.Bind("INSERT INTO orders VALUES (?)"), len(w.placed)); err != nil {
				return err
			}
			msg := message.NewMessageWithContext(ctx, postbox.NewMessageID(), []byte(payload))
			msg.Metadata.Set(postbox.MetadataOrderingKey, "all")
			return publish(ctx, tx, msg)
		})
		require.NoError(w, err)
		w.placed = append(w.placed, payload)
	}
}

// arrived waits until the broker has all orders, each at its first time in the order in which they
// were placed.
func (w *world) arrived(b *broker, what string) {
	w.Helper()
	w.eventually(func() bool { return len(b.first()) == len(w.placed) }, what)
	require.True(w, slices.Equal(w.placed, b.first()), "%s: the order is kept", what)
}

func (w *world) eventually(holds func() bool, what string) {
	w.Helper()
	require.Eventually(w, holds, patience, tick, what)
}

// toOutbox is a new producer.
func (w *world) toOutbox() *forwarder.Publisher {
	w.Helper()
	outbox, err := forwarder.NewPublisher(w.database.Postbox(), forwarder.PublisherConfig{}, nil)
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, outbox.Close()) })
	return outbox
}

// forward runs a forwarder until stopped.
func (w *world) forward(to message.Publisher, config forwarder.Config) (stop func()) {
	w.Helper()
	config.PollMax = 50 * time.Millisecond
	fwd, err := forwarder.New(w.database.Postbox(), to, config, watermill.NopLogger{})
	require.NoError(w, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.WithoutCancel(w.Context())) }()
	stop = sync.OnceFunc(func() {
		require.NoError(w, fwd.Close())
		require.NoError(w, <-ended)
	})
	w.Cleanup(stop)
	return stop
}
